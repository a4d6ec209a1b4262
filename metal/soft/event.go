//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"lector/metal"
)

// event implements metal.SharedEvent.
type event struct {
	device *device

	mu      sync.Mutex
	value   uint64
	raised  chan struct{} // closed and replaced when the value grows
	history []raise       // by value, for the clocks of mode Race
}

// raise is one step of an event: who waits for a value up to this comes after what the clock says.
type raise struct {
	value uint64
	clock clock
}

// maxHistory bounds what an event remembers; older raises merge, which hides nothing but late waiters' races.
const maxHistory = 256

// NewEvent implements metal.Device.
func (d *device) NewEvent() (metal.SharedEvent, error) {
	return &event{device: d, raised: make(chan struct{})}, nil
}

// Value implements metal.SharedEvent.
func (e *event) Value() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.value
}

// Signal implements metal.SharedEvent.
func (e *event) Signal(value uint64) { e.raise(value, e.device.clocks.host()) }

// raise lifts the value after what the clock says was done.
func (e *event) raise(value uint64, after clock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if value <= e.value {
		return
	}
	e.value = value
	if n := len(e.history); n > 0 {
		after.join(&e.history[n-1].clock) // one writer: what it signalled before was done before
	}
	if len(e.history) == maxHistory {
		e.history = append(e.history[:0], e.history[maxHistory/2:]...)
	}
	e.history = append(e.history, raise{value, after})
	close(e.raised)
	e.raised = make(chan struct{})
}

// reached returns the clock of the raise that reached value, or a channel to wait on.
func (e *event) reached(value uint64) (clock, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.value < value {
		return clock{}, e.raised
	}
	for _, r := range e.history {
		if r.value >= value {
			return r.clock, nil
		}
	}
	return clock{}, nil
}

var errQueueClosed = errors.New("the queue was closed")

// await returns when the event has reached value, or with an error when quit is closed.
func (e *event) await(value uint64, quit <-chan struct{}) (clock, error) {
	for {
		c, raised := e.reached(value)
		if raised == nil {
			return c, nil
		}
		select {
		case <-raised:
		case <-quit:
			return clock{}, fmt.Errorf("wait for an event to reach %d, which is at %d: %w", value, e.Value(), errQueueClosed)
		}
	}
}

// Wait implements metal.SharedEvent.
func (e *event) Wait(value uint64, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		c, raised := e.reached(value)
		if raised == nil {
			e.device.clocks.hostSaw(&c)
			return nil
		}
		select {
		case <-raised:
		case <-timer.C:
			return fmt.Errorf("%w: an event is at %d after %v, and not at %d", metal.ErrTimeout, e.Value(), timeout, value)
		}
	}
}

// Close implements metal.SharedEvent.
func (e *event) Close() error { return nil }
