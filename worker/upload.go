package worker

import (
	"context"
	"fmt"

	"lector/cache"
)

// upload is a staged cell on its way into the store, while the next one is computed.
type upload struct {
	end     int // tokens of the cell's boundary
	done    chan struct{}
	node    cache.Node
	written cache.Written
	seconds float64
	err     error
}

// aftermath is what is done behind an upload.
type aftermath struct {
	stored func(context.Context, cache.Node) error // when the store has the cell
	ended  func()                                  // in any case, the staged bytes being gone; nil: nothing
}

// upload stores a staged step in the background.
func (a *attempt) upload(ctx context.Context, step *cache.Step, then aftermath) *upload {
	u := &upload{end: step.Node.To, done: make(chan struct{})}
	go func() {
		defer close(u.done)
		u.err = a.lap(ctx, "upload", &u.seconds, func(ctx context.Context) error {
			a.drawn(ctx, step.Node.From, step.Node.To)
			var err error
			if u.node, u.written, err = step.Commit(ctx); err != nil {
				return err
			}
			return then.stored(ctx, u.node)
		})
		if err := step.Close(); u.err == nil {
			u.err = err
		}
		if then.ended != nil {
			then.ended()
		}
	}()
	return u
}

// storing is the part of a receipt that says what storing took: that the work stood still for it, that of it which it waited
// for the cell before, and what went on beside the work.
type storing struct{ store, held, behind *float64 }

// landed waits until an upload is in the store.
func (a *attempt) landed(ctx context.Context, u *upload, s storing) error {
	held := 0.0
	err := a.lap(ctx, "held", &held, func(context.Context) error {
		<-u.done // it ends with the context
		return u.err
	})
	*s.held += held
	*s.store += held
	*s.behind += u.seconds
	if err != nil {
		return fmt.Errorf("store the state at %d: %w", u.end, err)
	}
	a.reached(u.end)
	return nil
}

// begin stores a staged step in the background, drops the rolling state that it supersedes, and gives the cell's
// claim back: whoever waits for the cell finds it then.
func (in *ingest) begin(ctx context.Context, step *cache.Step, claim string) {
	in.pending = in.upload(ctx, step, aftermath{stored: in.dropSuperseded, ended: func() { in.unclaim(ctx, claim) }})
}

// landed waits until the cell before is in the store, and counts it: the spool is full until then (promise 8).
func (in *ingest) landed(ctx context.Context) error {
	u, s := in.pending, &in.receipt.Seconds
	if u == nil {
		return nil
	}
	in.pending = nil
	if err := in.attempt.landed(ctx, u, storing{&s.Store, &s.Held, &s.Behind}); err != nil {
		return err
	}
	in.count(u.node, u.written)
	return nil
}

// dropSuperseded gives up the rolling state before a node that is stored now.
func (in *ingest) dropSuperseded(ctx context.Context, n cache.Node) error {
	if err := in.Space.DropRolling(ctx, in.job.ID, &n); err != nil {
		return fmt.Errorf("drop superseded state: %w", err)
	}
	return nil
}

// unclaim gives a cell's claim back, beside the work. One that cannot be given back ends by itself.
func (in *ingest) unclaim(ctx context.Context, claim string) {
	in.alive.dropSoon(context.WithoutCancel(ctx), claim)
}
