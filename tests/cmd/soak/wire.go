package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// wire carries connections to the first of its targets that answers, until it is cut: then those that there are end, and
// no new ones are taken.
type wire struct {
	listener net.Listener
	targets  []string
	cut      atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newWire(targets ...string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, targets: targets, conns: map[net.Conn]bool{}}
	go w.serve()
	return w, nil
}

func (w *wire) address() string { return w.listener.Addr().String() }

func (w *wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		go w.carry(near)
	}
}

func (w *wire) carry(near net.Conn) {
	defer near.Close()
	for _, target := range w.targets {
		if w.cut.Load() {
			return
		}
		far, err := net.Dial("tcp", target)
		if err != nil {
			continue
		}
		defer far.Close()
		w.keep(near, far)
		go func() {
			io.Copy(far, near)
			far.Close()
		}()
		io.Copy(near, far)
		w.forget(near, far)
		return
	}
}

func (w *wire) keep(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

func (w *wire) forget(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		delete(w.conns, c)
	}
}

// sever cuts it.
func (w *wire) sever() {
	w.cut.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

// mend makes it whole.
func (w *wire) mend() { w.cut.Store(false) }

func (w *wire) close() {
	w.listener.Close()
	w.sever()
}
