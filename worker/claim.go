package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lector/cache"
	"lector/queue"
)

// claim waits until nobody else computes the cell, and says whether somebody did.
func (in *ingest) claim(ctx context.Context, name string) (waited bool, err error) {
	err = in.lap(ctx, "claim", &in.receipt.Seconds.Wait, func(ctx context.Context) error {
		for {
			l, err := in.Queue.Acquire(ctx, name, in.config.LeaseTTL)
			if err == nil {
				in.alive.hold(name, l)
				return nil
			}
			if !errors.Is(err, queue.ErrHeld) {
				return fmt.Errorf("claim %s: %w", name, err)
			}
			waited = true
			if err := in.drained(); err != nil {
				return err
			}
			select {
			case <-time.After(in.config.WaitPoll):
			case <-in.drain:
				return errDrain
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	return waited, err
}

// storedMeanwhile says that somebody stored cell i between the last look at the store and the claim. Once a stored cell
// turned out to be of no use, as its state is not kept, the others behind it are not asked for either.
func (in *ingest) storedMeanwhile(ctx context.Context, i int) (bool, error) {
	if in.beyond {
		return false, nil
	}
	_, err := in.Space.Node(ctx, in.keys[i])
	if errors.Is(err, cache.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for cell %d, which may be stored: %w", i, err)
	}
	return true, nil
}
