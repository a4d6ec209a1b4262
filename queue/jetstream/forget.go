package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// ErrOpen says that a job has not ended, so that it cannot be forgotten.
var ErrOpen = errors.New("job has not ended")

// Forget removes what the queue holds of a job that has ended: its record with the result, its events, its handle and its
// dead letter. What is in the store stays. ErrOpen, queue.ErrUnknown. The record goes last: after a crash halfway, Forget
// again does the rest.
func (q *Queue) Forget(ctx context.Context, id string) error {
	if !validToken(id) {
		return fmt.Errorf("forget job %q: %w", id, queue.ErrUnknown)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	// First: what comes from now on is of another run.
	story := []tail{{name: eventsStream, subject: eventSubject(id)}, {name: handlesStream, subject: handleSubject(id)}, {name: deadStream, subject: deadSubject(id)}}
	for i := range story {
		if err := story[i].open(call, q.js); err != nil {
			return q.fail(ctx, err, "forget job %s in %s", id, story[i].name)
		}
	}
	entry, err := q.jobs.Get(call, id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("forget job %q: %w", id, queue.ErrUnknown)
	}
	if err != nil {
		return q.fail(ctx, err, "read record of job %s", id)
	}
	rec, err := decodeRecord(id, entry.Value())
	if err != nil {
		return err
	}
	if !rec.State.Final() {
		return fmt.Errorf("forget job %s, which is %s: %w", id, rec.State, ErrOpen)
	}
	for _, t := range story {
		if err := t.drop(call); err != nil {
			return q.fail(ctx, err, "forget job %s in %s", id, t.name)
		}
	}
	err = q.jobs.Delete(call, id, jetstream.LastRevision(entry.Revision()))
	if isConflict(err) {
		return fmt.Errorf("forget job %s, which was queued again: %w", id, ErrOpen)
	}
	if err != nil {
		return q.fail(ctx, err, "forget job %s", id)
	}
	// The mark that a record was deleted would stay for ever. A record that follows it is of another run.
	mark := tail{name: "KV_" + jobsBucket, subject: "$KV." + jobsBucket + "." + id}
	if err := mark.open(call, q.js); err != nil {
		return q.fail(ctx, err, "forget job %s", id)
	}
	last, err := mark.stream.GetLastMsgForSubject(call, mark.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && last.Header.Get("KV-Operation") != "DEL" {
		return nil
	}
	if err == nil {
		mark.last = last.Sequence
		err = mark.drop(call)
	}
	if err != nil {
		return q.fail(ctx, err, "forget job %s", id)
	}
	return nil
}

// tail is the messages of a subject up to a sequence.
type tail struct {
	name, subject string
	stream        jetstream.Stream
	last          uint64
}

// open finds where the stream ends now.
func (t *tail) open(call context.Context, js jetstream.JetStream) (err error) {
	if t.stream, err = js.Stream(call, t.name); err == nil {
		t.last = t.stream.CachedInfo().State.LastSeq
	}
	return err
}

func (t *tail) drop(call context.Context) error {
	return t.stream.Purge(call, jetstream.WithPurgeSubject(t.subject), jetstream.WithPurgeSequence(t.last+1))
}
