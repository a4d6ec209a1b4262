package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// Unfinished lists every job that has not ended: what they read and resume from is needed still. A list that may lack
// one is an error.
func (q *Queue) Unfinished(ctx context.Context) ([]queue.Status, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	keys, err := q.jobs.Keys(call, jetstream.IgnoreDeletes())
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	if err != nil {
		return nil, q.fail(ctx, err, "list jobs")
	}
	if call.Err() != nil {
		return nil, q.fail(ctx, call.Err(), "list jobs")
	}
	var out []queue.Status
	for _, id := range keys {
		if !validToken(id) {
			continue // a setting of the queue
		}
		s, err := q.Status(ctx, id)
		if errors.Is(err, queue.ErrUnknown) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		if !s.State.Final() {
			out = append(out, s)
		}
	}
	return out, nil
}
