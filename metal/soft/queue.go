//go:build linux && (amd64 || arm64)

package soft

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lector/metal"
	"lector/metal/encode"
)

// queue implements metal.Queue: one goroutine runs its command buffers in the order of Commit.
type queue struct {
	device *device
	label  string
	number uint32        // to the race detector
	quit   chan struct{} // closed by Close: ends waits for events
	done   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	arrived *sync.Cond
	waiting []*commands
	closed  bool
	clock   clock // what the work so far comes after; of the goroutine alone
}

// NewQueue implements metal.Device.
func (d *device) NewQueue(label string) (metal.Queue, error) {
	q := &queue{device: d, label: label, number: d.clocks.newQueue(), quit: make(chan struct{}), done: make(chan struct{})}
	q.arrived = sync.NewCond(&q.mu)
	go q.work()
	return q, nil
}

func (q *queue) work() {
	defer close(q.done)
	for {
		c := q.take()
		if c == nil {
			return
		}
		q.run(c)
	}
}

// take is the next command buffer, or nil when the queue is closed and empty.
func (q *queue) take() *commands {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed {
		q.arrived.Wait()
	}
	if len(q.waiting) == 0 {
		return nil
	}
	c := q.waiting[0]
	q.waiting = q.waiting[1:]
	return c
}

func (q *queue) put(c *commands) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("commit %q to queue %q: %w", c.Label(), q.label, errQueueClosed)
	}
	q.waiting = append(q.waiting, c)
	q.arrived.Signal()
	return nil
}

// run runs one command buffer. After an error nothing of it runs any more, but its events are still raised,
// so that nobody waits for them in vain.
func (q *queue) run(c *commands) {
	q.clock.join(&c.after)
	var failed error
	var spent time.Duration
	for _, step := range c.steps {
		switch {
		case step.signal:
			step.event.raise(step.value, q.clock)
		case failed != nil:
		case step.event != nil:
			seen, err := step.event.await(step.value, q.quit)
			if err != nil {
				failed = fmt.Errorf("command buffer %q: %w", c.Label(), err)
			}
			q.clock.join(&seen)
		default:
			began := time.Now()
			if err := q.dispatch(step.dispatch); err != nil {
				failed = fmt.Errorf("command buffer %q, encoder %q: %w", c.Label(), step.encoder, err)
			}
			spent += max(time.Since(began), 1)
		}
	}
	c.ended = q.clock
	c.Finish(failed, spent)
}

func (q *queue) dispatch(x *dispatch) error {
	number := q.device.clocks.next(q.number)
	q.clock[q.number] = number
	return x.run(q.device, stamp{queue: q.number, number: number, visible: q.clock})
}

// Close implements metal.Queue. Work that still waits for an event ends with an error.
func (q *queue) Close() error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.quit)
		q.arrived.Signal()
	}
	q.mu.Unlock()
	<-q.done
	return nil
}

// step is one thing that a command buffer does: raise an event, wait for one, or dispatch.
type step struct {
	encoder  string
	event    *event
	value    uint64
	signal   bool
	dispatch *dispatch
}

// commands implements metal.CommandBuffer. Its device time is that of its dispatches, without waits for events.
type commands struct {
	encode.Commands
	queue *queue
	steps []step
	after clock // what was done before Commit, as far as the host knows
	ended clock // what is done when it is
}

// NewCommandBuffer implements metal.Queue.
func (q *queue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	return &commands{Commands: encode.New(label), queue: q}, nil
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

// Commit implements metal.CommandBuffer.
func (c *commands) Commit() error {
	return c.Commands.Commit(func() error {
		c.after = c.queue.device.clocks.host()
		return c.queue.put(c)
	})
}

// Wait implements metal.CommandBuffer. The host has seen what was done by then.
func (c *commands) Wait(ctx context.Context) error {
	err := c.Commands.Wait(ctx)
	if c.Done() {
		c.queue.device.clocks.hostSaw(&c.ended)
	}
	return err
}
