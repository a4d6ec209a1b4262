package stream

import (
	"context"
	"sync"
)

// Counter is an ops.Event in this process's memory. The zero value stands at 0.
type Counter struct {
	mu      sync.Mutex
	value   uint64
	changed chan struct{} // closed at the next change; nil while nobody waits
}

// Signal raises the counter to v. A value that it has passed already has no effect.
func (c *Counter) Signal(v uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v <= c.value {
		return
	}
	c.value = v
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Value is where the counter stands.
func (c *Counter) Value() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value
}

// Wait returns when the counter has reached v, or with the cause of the context's end.
func (c *Counter) Wait(ctx context.Context, v uint64) error {
	for {
		changed := c.until(v)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// until is nil if the counter has reached v, or else closed at its next change.
func (c *Counter) until(v uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.value >= v {
		return nil
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}
