package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// overdue says that the deadline has passed, by the server's clock, while nobody works on the job.
func (q *Queue) overdue(ctx context.Context, r record) (bool, error) {
	if r.State != queue.Queued || r.Job.Deadline.IsZero() {
		return false, nil
	}
	now, err := q.nowFor(ctx)
	return err == nil && !now.Before(r.Job.Deadline), err
}

// Cancel ends a job that waits. Of one that is worked on it notes that it is to end, and rings for the worker.
func (q *Queue) Cancel(ctx context.Context, id string, c queue.Cancellation) (queue.Status, error) {
	if s, err := q.Status(ctx, id); err != nil || s.State.Final() {
		return s, err
	}
	rec, err := q.change(ctx, id, func(r *record) error {
		if r.State.Final() || r.Cancel != nil {
			return errKeep
		}
		r.Cancel = &c
		if r.State == queue.Queued {
			r.State = queue.Cancelled
		}
		return nil
	})
	switch {
	case err != nil:
		return rec.Status, err
	case rec.State == queue.Cancelled && rec.changed:
		err = q.ended(ctx, rec)
	case !rec.State.Final():
		_ = q.nc.Publish(cancelBell(id), nil) // a lost ring costs one heartbeat
	}
	return rec.Status, err
}

// ended tells that a job which nobody works on has ended, and takes its message out.
func (q *Queue) ended(ctx context.Context, rec record) error {
	if err := q.tellEnded(ctx, rec); err != nil {
		return err
	}
	if rec.Sequence == 0 {
		return nil // whoever is delivered the message drops it
	}
	call, cancel := q.call(ctx)
	defer cancel()
	s, err := q.js.Stream(call, jobsStream)
	if err == nil {
		err = s.DeleteMsg(call, rec.Sequence)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !hasCode(err, codeNoMessage) {
		return q.fail(ctx, err, "take job %s out of the queue", rec.Job.ID)
	}
	return nil
}

// codeNoMessage is the server's word for a message to delete that is gone already.
const codeNoMessage jetstream.ErrorCode = 10057

func (q *Queue) tellEnded(ctx context.Context, rec record) error {
	e := queue.Event{
		Version: 1, Job: rec.Job.ID, Attempt: rec.Attempts, Type: queue.EventEnded, At: q.cfg.Clock().UTC(), State: rec.State, Result: rec.Result,
	}
	switch {
	case rec.Cancel != nil:
		e.Reason = rec.Cancel.Reason
	case rec.Dead != nil:
		e.Reason = rec.Dead.Reason
	}
	return q.Publish(ctx, e)
}

// hold has cancellations of the job nudge the delivery.
func (q *Queue) hold(d *delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held[d.job.ID] = d
}

func (q *Queue) letGo(d *delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[d.job.ID] == d {
		delete(q.held, d.job.ID)
	}
}

// recall is the record of a job that this queue has a delivery of, as it was written or read last.
func (q *Queue) recall(job string) (record, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d := q.held[job]; d != nil {
		return d.known, d.revision
	}
	return record{}, 0
}

// remember keeps a record for recall; revision 0 forgets it.
func (q *Queue) remember(rec record, job string, revision uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d := q.held[job]; d != nil {
		d.known, d.revision = rec, revision
	}
}

// nudge tells the delivery of a job that Extend has news.
func (q *Queue) nudge(job string) {
	q.mu.Lock()
	d := q.held[job]
	q.mu.Unlock()
	if d == nil {
		return
	}
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// List yields the record of every job as one reading of the bucket finds it, each once.
func (q *Queue) List(ctx context.Context, yield func(queue.Status) bool) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(q.life, stop)()
	w, err := q.jobs.WatchAll(watching)
	if err != nil {
		return q.fail(ctx, err, "list jobs")
	}
	defer unwatch(w)
	err = eachEntry(watching, w.Updates(), q.cfg.Timeout, func(entry jetstream.KeyValueEntry) error {
		if !validToken(entry.Key()) {
			return nil // a setting of the queue
		}
		rec, err := decodeRecord(entry.Key(), entry.Value())
		if err != nil {
			return err
		}
		status := rec.Status
		late, err := q.overdue(ctx, rec)
		if late {
			status, err = q.Status(ctx, entry.Key())
		}
		if err == nil && !yield(status) {
			err = errEnough
		}
		return err
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case errors.Is(err, errQuiet):
		return q.fail(ctx, context.DeadlineExceeded, "list jobs")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return q.fail(ctx, err, "list jobs")
	}
	return err
}

// unwatch ends a listing, and takes what is still on its way: the library's goroutine waits until somebody does. The channel is
// closed when that has ended; it never is where the connection went before the library was ready to see that.
func unwatch(w jetstream.KeyWatcher) {
	_ = w.Stop() // fails only where it is gone already
	for {
		given := time.NewTimer(time.Second)
		select {
		case _, open := <-w.Updates():
			given.Stop()
			if !open {
				return
			}
		case <-given.C:
			return
		}
	}
}

// Why a listing ends early.
var (
	errEnough = errors.New("no more is asked for")
	errQuiet  = errors.New("nothing comes")
)

// eachEntry calls each for every key that a watch finds when it begins, once. The watch marks its beginning's end by counting,
// and what was written since it began counts too: an entry that was written again comes behind the mark. So it is read on
// until nothing is left.
func eachEntry(ctx context.Context, updates <-chan jetstream.KeyValueEntry, patience time.Duration, each func(jetstream.KeyValueEntry) error) error {
	seen := map[string]bool{}
	marked, left := false, uint64(0)
	for !marked || left > 0 {
		quiet := time.NewTimer(patience)
		select {
		case entry, open := <-updates:
			quiet.Stop()
			if !open {
				return context.Canceled
			}
			if entry == nil {
				marked = true
				continue
			}
			left = entry.Delta()
			if entry.Operation() != jetstream.KeyValuePut || seen[entry.Key()] {
				continue
			}
			seen[entry.Key()] = true
			if err := each(entry); err != nil {
				return err
			}
		case <-quiet.C:
			return errQuiet
		case <-ctx.Done():
			quiet.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// DeadLetters yields every dead letter, the oldest first.
func (q *Queue) DeadLetters(ctx context.Context, yield func(queue.Letter) bool) error {
	for next := uint64(1); ; {
		call, cancel := q.call(ctx)
		s, err := q.js.Stream(call, deadStream)
		var msg *jetstream.RawStreamMsg
		if err == nil {
			msg, err = s.GetMsg(call, next, jetstream.WithGetMsgSubject("lector.dead.*"))
		}
		cancel()
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return q.fail(ctx, err, "list dead letters")
		}
		next = msg.Sequence + 1
		var l queue.Letter
		if err := json.Unmarshal(msg.Data, &l); err != nil {
			return fmt.Errorf("decode dead letter %s: %w", msg.Subject, err)
		}
		l.Name = msg.Subject[len(deadSubject("")):]
		if !yield(l) {
			return nil
		}
	}
}

// DropLetter removes a dead letter; queue.ErrUnknown.
func (q *Queue) DropLetter(ctx context.Context, name string) error {
	if !validToken(name) {
		return fmt.Errorf("dead letter %q: %w", name, queue.ErrUnknown)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	seq, err := q.lastLetter(call, name)
	if err != nil {
		return q.fail(ctx, err, "look for dead letter %s", name)
	}
	if seq == 0 {
		return fmt.Errorf("dead letter %q: %w", name, queue.ErrUnknown)
	}
	return q.dropLetter(ctx, name, seq)
}

// lastLetter is the sequence of the dead letter of that name; 0 where there is none.
func (q *Queue) lastLetter(call context.Context, name string) (uint64, error) {
	s, err := q.js.Stream(call, deadStream)
	if err != nil {
		return 0, err
	}
	msg, err := s.GetLastMsgForSubject(call, deadSubject(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return msg.Sequence, nil
}

// dropLetter removes the letters of that name up to a sequence: one that came later is of a later run.
func (q *Queue) dropLetter(ctx context.Context, name string, upTo uint64) error {
	call, cancel := q.call(ctx)
	defer cancel()
	s, err := q.js.Stream(call, deadStream)
	if err == nil {
		err = s.Purge(call, jetstream.WithPurgeSubject(deadSubject(name)), jetstream.WithPurgeSequence(upTo+1))
	}
	if err != nil {
		return q.fail(ctx, err, "drop dead letter %s", name)
	}
	return nil
}
