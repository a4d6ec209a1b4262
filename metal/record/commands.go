package record

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"lector/metal"
	"lector/metal/encode"
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
	return &commands{Commands: encode.New(label), queue: q}, nil
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
	encode.Commands
	queue    *queue
	steps    []step
	encoders int
	block    int64
	place    int // in the order of the queue's commits, from 1 on; 0 without one
}

// Encoder implements metal.CommandBuffer.
func (c *commands) Encoder(label string) (metal.Encoder, error) {
	e := &encoder{commands: c, bound: map[int]Binding{}}
	if err := c.Begin(&e.Encoder, label); err != nil {
		return nil, err
	}
	c.encoders++
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

// Commit implements metal.CommandBuffer: all of it is done at once.
func (c *commands) Commit() error {
	return c.Commands.Commit(func() error {
		c.count()
		c.Finish(nil, 0)
		return nil
	})
}

// count counts what a command buffer does, and does the part of it that the host can see.
func (c *commands) count() {
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

// Wait implements metal.CommandBuffer. After a wait for a later command buffer of the queue there is nothing to wait
// for: then it only reads a status.
func (c *commands) Wait(ctx context.Context) error {
	if c.place > 0 {
		c.countWait()
	}
	return c.Commands.Wait(ctx)
}

func (c *commands) countWait() {
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
}

// encoder implements metal.Encoder.
type encoder struct {
	encode.Encoder
	commands *commands
	pipeline *pipeline
	bound    map[int]Binding
}

// SetPipeline implements metal.Encoder.
func (e *encoder) SetPipeline(p metal.Pipeline) {
	own, ok := p.(*pipeline)
	if e.Ours("a pipeline", ok && own.device == e.commands.queue.device) && e.Choose(own) {
		e.pipeline = own
	}
}

// SetBuffer implements metal.Encoder.
func (e *encoder) SetBuffer(index int, b metal.Buffer, offset int) {
	own, ok := b.(*buffer)
	if e.Ours("a buffer", ok && own.device == e.commands.queue.device) && e.Buffer(index, offset, len(own.data)) {
		e.bound[index] = Binding{Buffer: own, Offset: offset}
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	if e.Block(index, len(block)) {
		e.commands.block += int64(len(block))
		e.bound[index] = Binding{Block: bytes.Clone(block)}
	}
}

// SetThreadgroupMemory implements metal.Encoder.
func (e *encoder) SetThreadgroupMemory(index, size int) {
	e.Memory(index, size, e.commands.queue.device.options.Properties.ThreadgroupMemory)
}

// Dispatch implements metal.Encoder.
func (e *encoder) Dispatch(groups, threads metal.Size) {
	if !e.Grid(groups, threads) {
		return
	}
	e.commands.steps = append(e.commands.steps, step{dispatch: Dispatch{Commands: e.commands.Label(), Encoder: e.Label(),
		Kernel: e.pipeline.kernel, Groups: groups, Threads: threads, Bindings: maps.Clone(e.bound)}})
}
