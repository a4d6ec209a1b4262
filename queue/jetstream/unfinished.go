package jetstream

import (
	"context"

	"lector/queue"
)

// Unfinished lists every job that has not ended: what they read and resume from is needed still. A list that may lack
// one is an error.
func (q *Queue) Unfinished(ctx context.Context) ([]queue.Status, error) {
	var out []queue.Status
	err := q.List(ctx, func(s queue.Status) bool {
		if !s.State.Final() {
			out = append(out, s)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
