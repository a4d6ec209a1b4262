//go:build linux && (amd64 || arm64)

package ptx

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"lector/metal"
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
// the other but for fault; done is closed when its results may be read.
type commands struct {
	queue     *queue
	label     string
	steps     []step
	open      *encoder
	misuse    error // the first of encoding
	committed bool
	done      chan struct{}
	err       error // the first of handing over, and then the result
	fault     error // the first of running
	running   bool  // the clock runs
	ticks     []uintptr
	chunk     *chunk
	spent     time.Duration
}

// NewCommandBuffer implements metal.Queue.
func (q *queue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	return &commands{queue: q, label: label, done: make(chan struct{})}, nil
}

// misused keeps the first misuse, which Commit returns.
func (c *commands) misused(format string, args ...any) {
	if c.misuse == nil {
		c.misuse = fmt.Errorf("command buffer %q: "+format, append([]any{c.label}, args...)...)
	}
}

// failed keeps the first error of handing over.
func (c *commands) failed(err error, encoder string) {
	switch {
	case err == nil || c.err != nil:
	case encoder == "":
		c.err = fmt.Errorf("command buffer %q: %w", c.label, err)
	default:
		c.err = fmt.Errorf("command buffer %q, encoder %q: %w", c.label, encoder, err)
	}
}

// writable says whether something can be encoded now, outside of an encoder.
func (c *commands) writable(what string) bool {
	if c.committed || c.open != nil {
		c.misused("%s after Commit or before the encoder's End", what)
		return false
	}
	return true
}

// Encoder implements metal.CommandBuffer.
func (c *commands) Encoder(label string) (metal.Encoder, error) {
	if !c.writable("encoder " + label) {
		return nil, c.misuse
	}
	c.open = &encoder{commands: c, label: label}
	return c.open, nil
}

// WaitEvent implements metal.CommandBuffer.
func (c *commands) WaitEvent(e metal.SharedEvent, value uint64) { c.addEvent(e, value, false) }

// SignalEvent implements metal.CommandBuffer.
func (c *commands) SignalEvent(e metal.SharedEvent, value uint64) { c.addEvent(e, value, true) }

func (c *commands) addEvent(e metal.SharedEvent, value uint64, signal bool) {
	own, ok := e.(*event)
	if !ok || own.device != c.queue.device {
		c.misused("an event of another device")
		return
	}
	if c.writable("an event") {
		c.steps = append(c.steps, step{event: own, value: value, signal: signal})
	}
}

// Copy implements metal.Copier.
func (c *commands) Copy(to metal.Buffer, offset int, from metal.Buffer, at, n int) {
	x, ok := to.(*buffer)
	y, same := from.(*buffer)
	switch {
	case !ok || !same || x.device != c.queue.device || y.device != c.queue.device:
		c.misused("a copy between buffers of another device")
	case n <= 0 || offset < 0 || at < 0 || offset > x.size-n || at > y.size-n:
		c.misused("a copy of %d bytes from %d of a buffer of %d to %d of one of %d", n, at, y.size, offset, x.size)
	case c.writable("a copy"):
		c.steps = append(c.steps, step{copy: &copying{x, y, x.at + uint64(offset), y.at + uint64(at), n}})
	}
}

// Commit implements metal.CommandBuffer.
func (c *commands) Commit() error {
	if c.committed {
		return fmt.Errorf("command buffer %q is committed already", c.label)
	}
	if c.open != nil {
		c.misused("encoder %q was not ended", c.open.label)
	}
	c.committed = true
	err := c.misuse
	if err == nil && !c.queue.committed.put(c) {
		err = fmt.Errorf("commit %q to queue %q: %w", c.label, c.queue.label, errQueueClosed)
	}
	if err != nil {
		c.err = err
		close(c.done)
	}
	return err
}

var errNotCommitted = errors.New("it was not committed")

// Wait implements metal.CommandBuffer.
func (c *commands) Wait(ctx context.Context) error {
	if !c.committed {
		return fmt.Errorf("wait for command buffer %q: %w", c.label, errNotCommitted)
	}
	for began := time.Now(); time.Since(began) < patience; runtime.Gosched() {
		select {
		case <-c.done:
			return c.err
		default:
		}
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done: // done work is never reported as cancelled
		default:
			return fmt.Errorf("wait for command buffer %q: %w", c.label, ctx.Err())
		}
	}
	return c.err
}

// DeviceTime implements metal.CommandBuffer: the time of its dispatches, without waits for events.
func (c *commands) DeviceTime() time.Duration {
	select {
	case <-c.done:
		return c.spent
	default:
		return 0
	}
}
