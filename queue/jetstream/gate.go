package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// pauseKey is where the bucket of jobs keeps the pause that stands. No job can have it as its id.
const pauseKey = "queue.pause"

// Pause keeps every Next on this server from handing out jobs. A Next that is looking for one just now may still get it.
func (q *Queue) Pause(ctx context.Context, p queue.Pause) error {
	b, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode pause: %w", err)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	if _, err := q.jobs.Put(call, pauseKey, b); err != nil {
		return q.fail(ctx, err, "pause the queue")
	}
	return nil
}

// Unpause lets Next go on within Config.Poll.
func (q *Queue) Unpause(ctx context.Context) error {
	call, cancel := q.call(ctx)
	defer cancel()
	if err := q.jobs.Purge(call, pauseKey); err != nil {
		return q.fail(ctx, err, "unpause the queue")
	}
	return nil
}

// Paused returns the pause that stands, or nil.
func (q *Queue) Paused(ctx context.Context) (*queue.Pause, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	entry, err := q.jobs.Get(call, pauseKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, q.fail(ctx, err, "read whether the queue is paused")
	}
	var p queue.Pause
	if err := json.Unmarshal(entry.Value(), &p); err != nil {
		return nil, fmt.Errorf("decode the pause of the queue: %w", err)
	}
	return &p, nil
}
