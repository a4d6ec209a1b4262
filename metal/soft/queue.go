//go:build linux && (amd64 || arm64)

package soft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lector/metal"
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
		return fmt.Errorf("commit %q to queue %q: %w", c.label, q.label, errQueueClosed)
	}
	q.waiting = append(q.waiting, c)
	q.arrived.Signal()
	return nil
}

// run runs one command buffer. After an error nothing of it runs any more, but its events are still raised,
// so that nobody waits for them in vain.
func (q *queue) run(c *commands) {
	q.clock.join(&c.after)
	for _, step := range c.steps {
		switch {
		case step.signal:
			step.event.raise(step.value, q.clock)
		case c.err != nil:
		case step.event != nil:
			seen, err := step.event.await(step.value, q.quit)
			if err != nil {
				c.err = fmt.Errorf("command buffer %q: %w", c.label, err)
			}
			q.clock.join(&seen)
		default:
			began := time.Now()
			if err := q.dispatch(step.dispatch); err != nil {
				c.err = fmt.Errorf("command buffer %q, encoder %q: %w", c.label, step.encoder, err)
			}
			c.spent += max(time.Since(began), 1)
		}
	}
	c.ended = q.clock
	close(c.done)
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

// commands implements metal.CommandBuffer. Until Commit one goroutine writes it, then the queue's; done is
// closed when its results may be read.
type commands struct {
	queue     *queue
	label     string
	steps     []step
	open      *encoder
	misuse    error // the first of encoding
	committed bool
	after     clock // what was done before Commit, as far as the host knows
	done      chan struct{}
	err       error
	spent     time.Duration
	ended     clock
}

// NewCommandBuffer implements metal.Queue.
func (q *queue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	return &commands{queue: q, label: label, done: make(chan struct{})}, nil
}

// fault keeps the first misuse, which Commit returns.
func (c *commands) fault(format string, args ...any) {
	if c.misuse == nil {
		c.misuse = fmt.Errorf("command buffer %q: "+format, append([]any{c.label}, args...)...)
	}
}

// writable says whether something can be encoded now, outside of an encoder.
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
	c.after = c.queue.device.clocks.host()
	err := c.misuse
	if err == nil {
		err = c.queue.put(c)
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
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done: // done work is never reported as cancelled
		default:
			return fmt.Errorf("wait for command buffer %q: %w", c.label, ctx.Err())
		}
	}
	c.queue.device.clocks.hostSaw(&c.ended)
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
