//go:build (darwin && arm64) || (linux && (amd64 || arm64))

package apple

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lector/metal"
	"lector/metal/encode"
)

// maxUnfinished is how many command buffers of a queue may be on their way. Beyond Metal's own 64, because
// the host commits ahead of events that it raises later, and a queue that is full blocks.
const maxUnfinished = 1024

// queue implements metal.Queue. A goroutine waits for its command buffers in the order of Commit.
type queue struct {
	device *device
	id     id
	label  string
	done   chan struct{} // closed when the goroutine has ended

	mu       sync.Mutex // held while committing, so that the lists' order is Metal's
	arrived  *sync.Cond
	underway []*commands
	closed   bool
}

// NewQueue implements metal.Device.
func (d *device) NewQueue(label string) (metal.Queue, error) {
	q := &queue{device: d, label: label, done: make(chan struct{})}
	q.arrived = sync.NewCond(&q.mu)
	d.pool(func() {
		if q.id = id(d.send1(d.id, d.sel.newQueue, maxUnfinished)); q.id == 0 {
			return
		}
		d.send1(q.id, d.sel.setLabel, uintptr(d.nsString(label)))
		d.resident.mu.Lock()
		defer d.resident.mu.Unlock()
		if d.resident.set != 0 {
			d.send1(q.id, d.sel.addResidencySet, uintptr(d.resident.set))
		}
	})
	if q.id == 0 {
		return nil, fmt.Errorf("%w: Metal gives no queue", metal.ErrMemory)
	}
	go q.reap()
	return q, nil
}

// reap ends command buffers one after the other.
func (q *queue) reap() {
	defer close(q.done)
	for {
		q.mu.Lock()
		for len(q.underway) == 0 && !q.closed {
			q.arrived.Wait()
		}
		if len(q.underway) == 0 {
			q.mu.Unlock()
			return
		}
		c := q.underway[0]
		q.underway = q.underway[1:]
		q.mu.Unlock()
		c.finish()
	}
}

// Close implements metal.Queue. It returns when the work has ended.
func (q *queue) Close() error {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	q.arrived.Signal()
	q.mu.Unlock()
	<-q.done
	if first {
		q.device.pool(func() { q.device.release(q.id) })
	}
	return nil
}

// NewCommandBuffer implements metal.Queue.
func (q *queue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	return &commands{Commands: encode.New(label), queue: q}, nil
}

// event implements metal.SharedEvent.
type event struct {
	device *device
	id     id
	mu     sync.Mutex // of raising from the host
	closed atomic.Bool
}

// NewEvent implements metal.Device.
func (d *device) NewEvent() (metal.SharedEvent, error) {
	e := &event{device: d}
	d.pool(func() { e.id = id(d.send(d.id, d.sel.newSharedEvent)) })
	if e.id == 0 {
		return nil, fmt.Errorf("%w: Metal gives no event", metal.ErrMemory)
	}
	return e, nil
}

// Value implements metal.SharedEvent.
func (e *event) Value() uint64 { return uint64(e.device.send(e.id, e.device.sel.signaledValue)) }

// Signal implements metal.SharedEvent.
func (e *event) Signal(value uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Value() < value {
		e.device.pool(func() { e.device.send1(e.id, e.device.sel.setSignaledValue, uintptr(value)) })
	}
}

// Wait implements metal.SharedEvent.
func (e *event) Wait(value uint64, timeout time.Duration) error {
	if e.Value() >= value {
		return nil
	}
	milliseconds := max((timeout+time.Millisecond-1)/time.Millisecond, 0)
	reached := false
	e.device.pool(func() {
		reached = byte(e.device.send2(e.id, e.device.sel.waitUntilSignaled, uintptr(value), uintptr(milliseconds))) != 0
	})
	if !reached && e.Value() < value {
		return fmt.Errorf("%w: an event is at %d after %v, and not at %d", metal.ErrTimeout, e.Value(), timeout, value)
	}
	return nil
}

// Close implements metal.SharedEvent.
func (e *event) Close() error {
	if !e.closed.Swap(true) {
		e.device.pool(func() { e.device.release(e.id) })
	}
	return nil
}
