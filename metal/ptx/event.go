//go:build linux && (amd64 || arm64)

package ptx

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"lector/metal"
)

// event implements metal.SharedEvent. Its value lives here; what streams will raise it to, and the driver's event that
// says when, is kept as promises, so that another stream can be made to wait without the host.
type event struct {
	device *device

	mu       sync.Mutex
	value    uint64
	changed  chan struct{} // closed and replaced when the value grows or a promise is made
	promises []promise     // ascending
}

type promise struct {
	value uint64
	mark  uintptr // the driver's event; the queue that made it gives it back after the raise
}

// NewEvent implements metal.Device.
func (d *device) NewEvent() (metal.SharedEvent, error) {
	return &event{device: d, changed: make(chan struct{})}, nil
}

// Value implements metal.SharedEvent.
func (e *event) Value() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.value
}

// Signal implements metal.SharedEvent.
func (e *event) Signal(value uint64) { e.raise(value) }

// raise lifts the value and forgets the promises that it fulfils.
func (e *event) raise(value uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if value <= e.value {
		return
	}
	e.value = value
	for len(e.promises) > 0 && e.promises[0].value <= value {
		e.promises = e.promises[1:]
	}
	e.tell()
}

// tell wakes those who wait. e.mu is held.
func (e *event) tell() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// promised says that a stream will raise the value when it reaches mark.
func (e *event) promised(value uint64, mark uintptr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if value <= e.value || len(e.promises) > 0 && e.promises[len(e.promises)-1].value >= value {
		return
	}
	e.promises = append(e.promises, promise{value, mark})
	e.tell()
}

// hold makes a stream wait for the value where it is promised. It returns a channel to wait on where nobody has
// promised it yet.
func (e *event) hold(value uint64, stream uintptr) (<-chan struct{}, error) {
	e.mu.Lock() // held over the call: a mark is not used again before the raise
	defer e.mu.Unlock()
	if e.value >= value {
		return nil, nil
	}
	for _, p := range e.promises {
		if p.value >= value {
			return nil, e.device.driver.check("wait for an event", e.device.driver.streamWait(stream, p.mark, 0))
		}
	}
	return e.changed, nil
}

var errQueueClosed = errors.New("the queue was closed")

// await returns when the stream waits for the value or has no need to, or with an error when quit is closed.
func (e *event) await(value uint64, stream uintptr, quit <-chan struct{}) error {
	for {
		changed, err := e.hold(value, stream)
		if changed == nil || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-quit:
			return fmt.Errorf("wait for an event to reach %d, which is at %d: %w", value, e.Value(), errQueueClosed)
		}
	}
}

// reached returns nil where the value is reached, or a channel to wait on.
func (e *event) reached(value uint64) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.value >= value {
		return nil
	}
	return e.changed
}

// Wait implements metal.SharedEvent.
func (e *event) Wait(value uint64, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed := e.reached(value)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return fmt.Errorf("%w: an event is at %d after %v, and not at %d", metal.ErrTimeout, e.Value(), timeout, value)
		}
	}
}

// Close implements metal.SharedEvent.
func (e *event) Close() error { return nil }
