// Package encode is what command buffers and encoders are alike on every device: what may be encoded when, sizes that every
// device refuses, the first misuse, which Commit returns, and the wait for the end.
//
// A device's own types embed Commands and Encoder, keep beside them what they list, and say what is theirs. Nothing here knows
// how work is handed over or run.
package encode

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Commands is a command buffer without its list. Until Commit one goroutine writes it; then it is the device's until Finish.
type Commands struct {
	label     string
	open      *Encoder
	misuse    error // the first of encoding
	committed bool
	done      chan struct{} // closed when what follows may be read
	err       error
	spent     time.Duration
}

// New starts a command buffer.
func New(label string) Commands { return Commands{label: label, done: make(chan struct{})} }

// Label is its name in errors and traces.
func (c *Commands) Label() string { return c.label }

// Misused keeps the first misuse.
func (c *Commands) Misused(format string, args ...any) {
	if c.misuse == nil {
		c.misuse = fmt.Errorf("command buffer %q: "+format, append([]any{c.label}, args...)...)
	}
}

// Ours says whether what is encoded is of this device; anything else is a misuse.
func (c *Commands) Ours(what string, ours bool) bool {
	if !ours {
		c.Misused("%s of another device", what)
	}
	return ours
}

// Writable says whether something may be encoded now, outside of an encoder; a misuse if not.
func (c *Commands) Writable(what string) bool {
	if c.committed || c.open != nil {
		c.Misused("%s after Commit or before the encoder's End", what)
		return false
	}
	return true
}

// Begin opens an encoder: one at a time.
func (c *Commands) Begin(e *Encoder, label string) error {
	if !c.Writable("encoder " + label) {
		return c.misuse
	}
	*e = Encoder{commands: c, label: label}
	c.open = e
	return nil
}

// Commit ends the encoding and calls submit, which hands the work to whoever calls Finish. After a misuse it is not called;
// that, and an error of submit, are the result.
func (c *Commands) Commit(submit func() error) error {
	if c.committed {
		return fmt.Errorf("command buffer %q is committed already", c.label)
	}
	if c.open != nil {
		c.Misused("encoder %q was not ended", c.open.label)
	}
	c.committed = true
	err := c.misuse
	if err == nil {
		err = submit()
	}
	if err != nil {
		c.Finish(err, 0)
	}
	return err
}

// Finish gives the work's result and the time that the device took for it, once.
func (c *Commands) Finish(err error, spent time.Duration) {
	c.err, c.spent = err, spent
	close(c.done)
}

// Done says whether the work is done.
func (c *Commands) Done() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

var errNotCommitted = errors.New("it was not committed")

// Wait implements metal.CommandBuffer.
func (c *Commands) Wait(ctx context.Context) error {
	if !c.committed {
		return fmt.Errorf("wait for command buffer %q: %w", c.label, errNotCommitted)
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if c.Done() { // done work is never reported as cancelled
		return c.err
	}
	return fmt.Errorf("wait for command buffer %q: %w", c.label, ctx.Err())
}

// DeviceTime implements metal.CommandBuffer.
func (c *Commands) DeviceTime() time.Duration {
	if !c.Done() {
		return 0
	}
	return c.spent
}
