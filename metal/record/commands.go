package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"lector/metal"
)

// event implements metal.SharedEvent.
type event struct {
	device *Device
	mu     sync.Mutex
	value  uint64
	raised chan struct{} // closed and replaced when the value grows
}

// NewEvent implements metal.Device.
func (d *Device) NewEvent() (metal.SharedEvent, error) {
	return &event{device: d, raised: make(chan struct{})}, nil
}

// Value implements metal.SharedEvent.
func (e *event) Value() uint64 {
	value, _ := e.now()
	return value
}

func (e *event) now() (uint64, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.value, e.raised
}

// Signal implements metal.SharedEvent.
func (e *event) Signal(value uint64) {
	e.device.count(func(c *Counts) { c.HostSignals++ })
	e.raise(value)
}

func (e *event) raise(value uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if value > e.value {
		e.value = value
		close(e.raised)
		e.raised = make(chan struct{})
	}
}

// Wait implements metal.SharedEvent.
func (e *event) Wait(value uint64, timeout time.Duration) error {
	e.device.count(func(c *Counts) { c.HostEventWaits++ })
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		now, raised := e.now()
		if now >= value {
			return nil
		}
		select {
		case <-raised:
		case <-timer.C:
			return fmt.Errorf("%w: an event is at %d after %v, and not at %d", metal.ErrTimeout, now, timeout, value)
		}
	}
}

// Close implements metal.SharedEvent.
func (e *event) Close() error { return nil }

// queue implements metal.Queue. Commits of one queue take turns, so that Options.Dispatch sees their order.
type queue struct {
	device    *Device
	mu        sync.Mutex
	committed int // command buffers
	seen      int // of those, how many from the first on the host has waited for
}

// NewQueue implements metal.Device.
func (d *Device) NewQueue(string) (metal.Queue, error) { return &queue{device: d}, nil }

// Close implements metal.Queue.
func (q *queue) Close() error { return nil }

// NewCommandBuffer implements metal.Queue.
func (q *queue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	return &commands{queue: q, label: label}, nil
}

// step is one thing that a command buffer does: an event or a dispatch.
type step struct {
	event    *event
	value    uint64
	signal   bool
	dispatch Dispatch
}

// commands implements metal.CommandBuffer.
type commands struct {
	queue     *queue
	label     string
	steps     []step
	encoders  int
	block     int64
	open      *encoder
	misuse    error
	committed bool
	place     int // in the order of the queue's commits, from 1 on
}

func (c *commands) fault(format string, args ...any) {
	if c.misuse == nil {
		c.misuse = fmt.Errorf("command buffer %q: "+format, append([]any{c.label}, args...)...)
	}
}

func (c *commands) writable(what string) bool {
	if c.committed || c.open != nil {
		c.fault("%s after Commit or before the encoder's End", what)
		return false
	}
	return true
}

// Encoder implements metal.CommandBuffer.
func (c *commands) Encoder(label string) (metal.Encoder, error) {
	if !c.writable("encoder " + label) {
		return nil, c.misuse
	}
	c.encoders++
	c.open = &encoder{commands: c, label: label, bound: map[int]Binding{}}
	return c.open, nil
}

// WaitEvent implements metal.CommandBuffer.
func (c *commands) WaitEvent(e metal.SharedEvent, value uint64) { c.addEvent(e, value, false) }

// SignalEvent implements metal.CommandBuffer.
func (c *commands) SignalEvent(e metal.SharedEvent, value uint64) { c.addEvent(e, value, true) }

func (c *commands) addEvent(e metal.SharedEvent, value uint64, signal bool) {
	own, ok := e.(*event)
	if !ok || own.device != c.queue.device {
		c.fault("an event of another device")
		return
	}
	if c.writable("an event") {
		c.steps = append(c.steps, step{event: own, value: value, signal: signal})
	}
}

// Commit implements metal.CommandBuffer.
func (c *commands) Commit() error {
	if c.committed {
		return fmt.Errorf("command buffer %q is committed already", c.label)
	}
	if c.open != nil {
		c.fault("encoder %q was not ended", c.open.label)
	}
	c.committed = true
	if c.misuse != nil {
		return c.misuse
	}
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	c.queue.committed++
	c.place = c.queue.committed
	d := c.queue.device
	d.count(c.tally)
	for _, s := range c.steps {
		switch {
		case s.signal:
			s.event.raise(s.value)
		case s.event == nil && d.options.Dispatch != nil:
			d.options.Dispatch(s.dispatch)
		}
	}
	c.steps = nil
	return nil
}

// tally adds the command buffer to the counts.
func (c *commands) tally(t *Counts) {
	t.CommandBuffers++
	t.Encoders += c.encoders
	t.BlockBytes += c.block
	for _, s := range c.steps {
		switch {
		case s.signal:
			t.EventSignals++
		case s.event != nil:
			t.EventWaits++
		default:
			t.Dispatches++
			w := t.Kernels[s.dispatch.Kernel]
			w.Dispatches++
			w.Groups += int64(s.dispatch.Groups.Count())
			w.Threads += int64(s.dispatch.Groups.Count()) * int64(s.dispatch.Threads.Count())
			t.Kernels[s.dispatch.Kernel] = w
		}
	}
}

var errNotCommitted = errors.New("it was not committed")

// Wait implements metal.CommandBuffer. After a wait for a later command buffer of the queue there is nothing to wait
// for: then it only reads a status.
func (c *commands) Wait(context.Context) error {
	if !c.committed {
		return fmt.Errorf("wait for command buffer %q: %w", c.label, errNotCommitted)
	}
	q := c.queue
	q.mu.Lock()
	past := c.place <= q.seen
	q.seen = max(q.seen, c.place)
	q.mu.Unlock()
	q.device.count(func(t *Counts) {
		if past {
			t.StatusReads++
		} else {
			t.HostWaits++
		}
	})
	return c.misuse
}

// DeviceTime implements metal.CommandBuffer.
func (c *commands) DeviceTime() time.Duration { return 0 }

// encoder implements metal.Encoder.
type encoder struct {
	commands *commands
	label    string
	pipeline *pipeline
	bound    map[int]Binding
	ended    bool
}

func (e *encoder) fault(format string, args ...any) {
	e.commands.fault("encoder %q: "+format, append([]any{e.label}, args...)...)
}

func (e *encoder) usable(what string) bool {
	if e.ended {
		e.fault("%s after End", what)
	}
	return !e.ended
}

// SetPipeline implements metal.Encoder.
func (e *encoder) SetPipeline(p metal.Pipeline) {
	own, ok := p.(*pipeline)
	if !ok || own.device != e.commands.queue.device {
		e.fault("a pipeline of another device")
		return
	}
	if e.usable("SetPipeline") {
		e.pipeline = own
	}
}

// SetBuffer implements metal.Encoder.
func (e *encoder) SetBuffer(index int, b metal.Buffer, offset int) {
	own, ok := b.(*buffer)
	if !ok || own.device != e.commands.queue.device {
		e.fault("buffer %d is of another device", index)
		return
	}
	switch err := metal.CheckBuffer(index, offset, len(own.data)); {
	case err != nil:
		e.fault("%w", err)
	case e.usable("SetBuffer"):
		e.bound[index] = Binding{Buffer: own, Offset: offset}
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	switch err := metal.CheckBlock(index, len(block)); {
	case err != nil:
		e.fault("%w", err)
	case e.usable("SetBytes"):
		e.commands.block += int64(len(block))
		e.bound[index] = Binding{Block: bytes.Clone(block)}
	}
}

// SetThreadgroupMemory implements metal.Encoder.
func (e *encoder) SetThreadgroupMemory(index, size int) {
	limit := e.commands.queue.device.options.Properties.ThreadgroupMemory
	if index < 0 || index >= metal.MaxBuffers || size <= 0 || size > limit || size%16 != 0 {
		e.fault("threadgroup memory %d of %d bytes: a multiple of 16 up to %d, at 0 to %d", index, size, limit, metal.MaxBuffers-1)
		return
	}
	e.usable("SetThreadgroupMemory")
}

// Dispatch implements metal.Encoder.
func (e *encoder) Dispatch(groups, threads metal.Size) {
	if !e.usable("Dispatch") {
		return
	}
	if e.pipeline == nil {
		e.fault("a dispatch before SetPipeline")
		return
	}
	if err := metal.CheckDispatch(e.pipeline, groups, threads); err != nil {
		e.fault("%w", err)
		return
	}
	e.commands.steps = append(e.commands.steps, step{dispatch: Dispatch{Commands: e.commands.label, Encoder: e.label,
		Kernel: e.pipeline.kernel, Groups: groups, Threads: threads, Bindings: maps.Clone(e.bound)}})
}

// End implements metal.Encoder.
func (e *encoder) End() {
	if !e.ended {
		e.ended = true
		e.commands.open = nil
	}
}
