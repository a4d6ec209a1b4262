package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

var _ queue.Gauge = (*Queue)(nil)

// Depth counts the messages of each kind and priority and asks the shared consumer how many of them are delivered.
// The two are read one after the other: while jobs move, a sum may be off by those that moved.
func (q *Queue) Depth(ctx context.Context) ([]queue.Depth, error) {
	if q.cfg.Model == "" {
		return nil, errors.New("count jobs: this queue was opened without a model")
	}
	call, cancel := q.call(ctx)
	defer cancel()
	s, err := q.js.Stream(call, jobsStream)
	if err != nil {
		return nil, q.fail(ctx, err, "count jobs")
	}
	info, err := s.Info(call, jetstream.WithSubjectFilter(fmt.Sprintf("lector.jobs.*.%s.*", q.cfg.Model)))
	if err != nil {
		return nil, q.fail(ctx, err, "count jobs")
	}
	var out []queue.Depth
	for _, kind := range []queue.Kind{queue.Ingest, queue.Resume} {
		for _, priority := range q.cfg.Priorities {
			d := queue.Depth{Kind: kind, Priority: priority, Waiting: int(info.State.Subjects[jobSubject(kind, q.cfg.Model, priority)])}
			if d.Waiting > 0 {
				if d.Taken, err = q.taken(call, s, consumerKey{kind, priority}); err != nil {
					return nil, q.fail(ctx, err, "count jobs of kind %s and priority %s", kind, priority)
				}
			}
			d.Taken = min(d.Taken, d.Waiting)
			d.Waiting -= d.Taken
			out = append(out, d)
		}
	}
	return out, nil
}

// taken is how many messages the shared consumer has delivered and nobody has settled.
func (q *Queue) taken(ctx context.Context, s jetstream.Stream, key consumerKey) (int, error) {
	c, err := s.Consumer(ctx, q.durable(key))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return c.CachedInfo().NumAckPending, nil
}
