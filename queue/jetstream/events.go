package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// Publish appends an event to the job's story and returns when it is stored.
func (q *Queue) Publish(ctx context.Context, e queue.Event) error {
	if !validToken(e.Job) {
		return fmt.Errorf("publish event: the job id %q is not made of letters, digits, '-' and '_'", e.Job)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event of job %s: %w", e.Job, err)
	}
	if err := q.fits(b, fmt.Sprintf("%s event of job %s", e.Type, e.Job)); err != nil {
		return err
	}
	call, cancel := q.call(ctx)
	defer cancel()
	if _, err := q.js.Publish(call, eventSubject(e.Job), b); err != nil {
		return q.fail(ctx, err, "publish event of job %s", e.Job)
	}
	_ = q.nc.Publish(eventBell(e.Job), nil) // a lost ring costs one Poll
	return nil
}

// Follow yields the job's events so far and from now on. Each is asked for by the sequence after the last one, so
// that none is missed or repeated whatever happens to the connection, and the server keeps nothing for a follower.
func (q *Queue) Follow(ctx context.Context, job string, yield func(queue.Event) bool) error {
	if !validToken(job) {
		return fmt.Errorf("follow job %q: %w", job, queue.ErrUnknown)
	}
	bell := make(chan struct{}, 1)
	sub, err := q.nc.Subscribe(eventBell(job), func(*nats.Msg) {
		select {
		case bell <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return q.fail(ctx, err, "follow job %s", job)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where it is gone already

	doing := "follow job " + job
	for next := uint64(1); ; {
		e, seq, err := q.eventFrom(ctx, job, next)
		if errors.Is(err, jetstream.ErrMsgNotFound) || q.away(ctx, err) {
			if err := q.wait(ctx, doing, bell); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		next = seq + 1
		if !yield(e) {
			return nil
		}
	}
}

// eventFrom returns the first event of the job at or after a sequence; jetstream.ErrMsgNotFound.
func (q *Queue) eventFrom(ctx context.Context, job string, from uint64) (queue.Event, uint64, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	var e queue.Event
	msg, err := q.events.GetMsg(call, from, jetstream.WithGetMsgSubject(eventSubject(job)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return e, 0, err
	}
	if err != nil {
		return e, 0, q.fail(ctx, err, "follow job %s", job)
	}
	if err := json.Unmarshal(msg.Data, &e); err != nil {
		return e, 0, fmt.Errorf("decode event %d of job %s: %w", msg.Sequence, job, err)
	}
	return e, msg.Sequence, nil
}
