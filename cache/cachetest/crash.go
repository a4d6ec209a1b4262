package cachetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"lector/cache"
)

// ErrCrashed is what every call to a Crash answers after its end.
var ErrCrashed = errors.New("the process has died")

// Crash is a store as a process sees it that dies after a number of effects: puts and deletes that reached the
// store. Every later call fails, reads too, and changes nothing. A test that runs a piece of work for every
// After from 0 to the effects of a whole run has crashed it between any two of them; it then goes on with a
// new process on the same Store.
type Crash struct {
	Store cache.Store
	After int  // effects that land
	Lost  bool // the answer to the last of them is lost, too

	mu      sync.Mutex
	effects int
}

var _ cache.Store = (*Crash)(nil)

// NewCrash wraps a store that dies after some effects; a negative number is never.
func NewCrash(store cache.Store, after int) *Crash { return &Crash{Store: store, After: after} }

// Effects is how many effects have landed. A put-if-absent that found its name taken is none.
func (c *Crash) Effects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.effects
}

// Crashed says whether the store has stopped serving.
func (c *Crash) Crashed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead()
}

func (c *Crash) dead() bool { return c.After >= 0 && c.effects >= c.After }

// alive refuses calls after the end.
func (c *Crash) alive(op Op, name string) error {
	if c.Crashed() {
		return fmt.Errorf("%s %s: %w", op, name, ErrCrashed)
	}
	return nil
}

// effect runs one effect at a time, so that their number says which have landed.
func (c *Crash) effect(op Op, name string, do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead() {
		return fmt.Errorf("%s %s: %w", op, name, ErrCrashed)
	}
	if err := do(); err != nil {
		return err
	}
	c.effects++
	if c.Lost && c.dead() {
		return fmt.Errorf("%s %s: %w", op, name, ErrCrashed)
	}
	return nil
}

// Put implements cache.Store.
func (c *Crash) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	return c.effect(Put, name, func() error { return c.Store.Put(ctx, name, body, size, how) })
}

// Delete implements cache.Store.
func (c *Crash) Delete(ctx context.Context, name string) error {
	return c.effect(Delete, name, func() error { return c.Store.Delete(ctx, name) })
}

// Get implements cache.Store.
func (c *Crash) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := c.alive(Get, name); err != nil {
		return nil, err
	}
	return c.Store.Get(ctx, name, off, n)
}

// Stat implements cache.Store.
func (c *Crash) Stat(ctx context.Context, name string) (cache.Object, error) {
	if err := c.alive(Stat, name); err != nil {
		return cache.Object{}, err
	}
	return c.Store.Stat(ctx, name)
}

// List implements cache.Store.
func (c *Crash) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		if err := c.alive(List, prefix); err != nil {
			yield(cache.Object{}, err)
			return
		}
		c.Store.List(ctx, prefix)(yield)
	}
}
