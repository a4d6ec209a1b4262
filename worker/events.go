package worker

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"lector/queue"
)

// eventVersion is the wire version of the events that are told.
const eventVersion = 1

// tell appends an event to the job's story. Once the delivery is lost it publishes nothing (promise 6).
func (a *attempt) tell(ctx context.Context, e queue.Event) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("tell %s of job %s: %w", e.Type, a.job.ID, err)
	}
	e.Version, e.Job, e.Attempt, e.At = eventVersion, a.job.ID, a.delivery.Attempt(), a.now().UTC()
	if err := a.Queue.Publish(ctx, e); err != nil {
		return fmt.Errorf("tell %s of job %s: %w", e.Type, a.job.ID, err)
	}
	a.say(levelOf(e.Type), string(e.Type), zap.Int("tokens", e.Tokens), zap.Int("total", e.Total), zap.Int("ids", len(e.IDs)))
	return nil
}
