package worker

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"lector/queue"
)

// Slots says how many deliveries of a kind are worked on at once. Kinds have slots of their own: a document takes
// minutes or hours, and a resume shall not wait for one.
type Slots map[queue.Kind]int

// Serve works on several deliveries at once, as Run does on one: until ctx ends, which drains them all, or until one
// of them ends the worker. They take turns on the engine and share Config.Memory.
func (w *Worker) Serve(ctx context.Context, slots Slots) error {
	serving := *w
	serving.share = newShare(w.Engine, w.Config.Memory, w.now)
	g, ctx := errgroup.WithContext(ctx)
	started := 0
	for _, kind := range []queue.Kind{queue.Resume, queue.Ingest} {
		for range slots[kind] {
			started++
			g.Go(func() error { return serving.Run(ctx, kind) })
		}
	}
	if started == 0 {
		return fmt.Errorf("serve jobs: no slot is given: %w", ErrInput)
	}
	return g.Wait()
}
