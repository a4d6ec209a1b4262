//go:build linux && (amd64 || arm64)

package ptx

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"lector/metal"
	"lector/metal/encode"
)

// step is one thing that a command buffer does: raise an event, wait for one, copy, or dispatch.
type step struct {
	encoder  string
	event    *event
	value    uint64
	signal   bool
	copy     *copying
	dispatch *dispatch
}

// copying is n bytes on their way from one buffer to another.
type copying struct {
	to, from *buffer
	at, of   uint64 // the device's addresses
	n        int
}

// dispatch is one encoded dispatch: its arguments in the kernel's order.
type dispatch struct {
	pipeline *pipeline
	bindings []binding
	memory   int // bytes of threadgroup arguments
	groups   metal.Size
	threads  metal.Size
}

// binding is what one argument of a kernel is bound to: an address, of a buffer's memory or of a block that is copied
// to the device with the others; or an offset in threadgroup memory. A constant reference is a block of the launch
// itself, which has the bytes where they fit, else their address.
type binding struct {
	buffer  *buffer
	block   []byte
	at      uint64
	written bool
	inside  *launchBlock
}

// launchBlock is a constant block as the kernels' headers declare it: an address, or zero and the bytes.
type launchBlock struct {
	at, _ uint64
	bytes [240]byte
}

// carried says that the launch has the block's bytes, so that they need not be copied to the device: whole words.
func (b *binding) carried() bool {
	return b.inside != nil && b.buffer == nil && len(b.block) <= len(b.inside.bytes) && len(b.block)%4 == 0
}

// commands implements metal.CommandBuffer. Until Commit one goroutine writes it, then those of the queue, one after
// the other but for fault. Its device time is that of its dispatches, without waits for events.
type commands struct {
	encode.Commands
	queue   *queue
	steps   []step
	refused error // the first of handing over
	fault   error // the first of running
	running bool  // the clock runs
	ticks   []uintptr
	chunk   *chunk
}

// NewCommandBuffer implements metal.Queue.
func (q *queue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	return &commands{Commands: encode.New(label), queue: q}, nil
}

// failed keeps the first error of handing over.
func (c *commands) failed(err error, encoder string) {
	switch {
	case err == nil || c.refused != nil:
	case encoder == "":
		c.refused = fmt.Errorf("command buffer %q: %w", c.Label(), err)
	default:
		c.refused = fmt.Errorf("command buffer %q, encoder %q: %w", c.Label(), encoder, err)
	}
}

// Encoder implements metal.CommandBuffer.
func (c *commands) Encoder(label string) (metal.Encoder, error) {
	e := &encoder{commands: c}
	if err := c.Begin(&e.Encoder, label); err != nil {
		return nil, err
	}
	return e, nil
}

// WaitEvent implements metal.CommandBuffer.
func (c *commands) WaitEvent(e metal.SharedEvent, value uint64) { c.addEvent(e, value, false) }

// SignalEvent implements metal.CommandBuffer.
func (c *commands) SignalEvent(e metal.SharedEvent, value uint64) { c.addEvent(e, value, true) }

func (c *commands) addEvent(e metal.SharedEvent, value uint64, signal bool) {
	own, ok := e.(*event)
	if c.Ours("an event", ok && own.device == c.queue.device) && c.Writable("an event") {
		c.steps = append(c.steps, step{event: own, value: value, signal: signal})
	}
}

// Copy implements metal.Copier.
func (c *commands) Copy(to metal.Buffer, offset int, from metal.Buffer, at, n int) {
	x, ok := to.(*buffer)
	y, same := from.(*buffer)
	switch {
	case !c.Ours("a buffer to copy", ok && same && x.device == c.queue.device && y.device == c.queue.device):
	case n <= 0 || offset < 0 || at < 0 || offset > x.size-n || at > y.size-n:
		c.Misused("a copy of %d bytes from %d of a buffer of %d to %d of one of %d", n, at, y.size, offset, x.size)
	case c.Writable("a copy"):
		c.steps = append(c.steps, step{copy: &copying{x, y, x.at + uint64(offset), y.at + uint64(at), n}})
	}
}

// Commit implements metal.CommandBuffer.
func (c *commands) Commit() error {
	return c.Commands.Commit(func() error {
		if !c.queue.committed.put(c) {
			return fmt.Errorf("commit %q to queue %q: %w", c.Label(), c.queue.label, errQueueClosed)
		}
		return nil
	})
}

// Wait implements metal.CommandBuffer: it looks for a while before it sleeps.
func (c *commands) Wait(ctx context.Context) error {
	for began := time.Now(); !c.Done() && time.Since(began) < patience; {
		runtime.Gosched()
	}
	return c.Commands.Wait(ctx)
}
