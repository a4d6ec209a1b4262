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

// begin stores a staged step in the background, drops the rolling state that it supersedes, and gives the cell's
// claim back: whoever waits for the cell finds it then.
func (in *ingest) begin(ctx context.Context, step *cache.Step, claim string) {
	u := &upload{end: step.Node.To, done: make(chan struct{})}
	in.pending = u
	go func() {
		defer close(u.done)
		u.err = in.lap(ctx, "upload", &u.seconds, func(ctx context.Context) error {
			in.drawn(ctx, step.Node.From, step.Node.To)
			var err error
			if u.node, u.written, err = step.Commit(ctx); err != nil {
				return err
			}
			return in.dropSuperseded(ctx, u.node)
		})
		if err := step.Close(); u.err == nil {
			u.err = err
		}
		in.unclaim(ctx, claim)
	}()
}

// landed waits until the cell before is in the store, and counts it: the spool is full until then (promise 8).
func (in *ingest) landed(ctx context.Context) error {
	u := in.pending
	if u == nil {
		return nil
	}
	held := 0.0
	err := in.lap(ctx, "held", &held, func(context.Context) error {
		<-u.done // it ends with the context
		return u.err
	})
	in.pending = nil
	in.receipt.Seconds.Held += held
	in.receipt.Seconds.Store += held
	in.receipt.Seconds.Behind += u.seconds
	if err != nil {
		return fmt.Errorf("store the state at %d: %w", u.end, err)
	}
	in.reached(u.end)
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
