package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"lector/queue"
)

// recordVersion is the version of record in the bucket. 1: first.
const recordVersion = 1

// record is what the bucket holds of a job. It is changed by compare-and-set only.
type record struct {
	Version int `json:"version"`
	queue.Status
	// Generation counts how often the job was queued afresh; message ids carry it, so that the server does not take the
	// new message for the old one.
	Generation int `json:"generation"`
	// Life tells this record's message ids from those of one before it, of a job that was forgotten.
	Life string `json:"life,omitempty"`
	// Sequence is that of the message that stands for the job in LECTOR_JOBS; 0 while none is known.
	Sequence uint64 `json:"sequence"`
	// Claim is that of the delivery that stands.
	Claim string `json:"claim,omitempty"`

	changed bool // by the call that returned this
}

func (r record) messageID() string { return fmt.Sprintf("%s.%d.%s", r.Job.ID, r.Generation, r.Life) }

// errKeep is how a change says that the record is right as it is.
var errKeep = errors.New("record needs no change")

// Submit records the job, then puts its message into the queue. A crash between the two leaves a record without
// a message, which the next Submit of the same job finds and mends.
func (q *Queue) Submit(ctx context.Context, job queue.Job) (queue.Status, error) {
	if _, err := job.Encode(); err != nil {
		return queue.Status{}, err
	}
	if !slices.Contains(q.cfg.Priorities, job.Priority) {
		return queue.Status{}, fmt.Errorf("submit job %s: the priority %q does not exist: use one of %s",
			job.ID, job.Priority, strings.Join(q.cfg.Priorities, ", "))
	}
	standing, err := q.Status(ctx, job.ID) // expires what is overdue
	if err != nil && !errors.Is(err, queue.ErrUnknown) {
		return queue.Status{}, err
	}
	if err == nil && standing.State != queue.Failed {
		return q.put(ctx, job)
	}
	counted := err == nil // a failed job that is to run again
	refund, err := q.charge(ctx, job, counted)
	if err != nil {
		return queue.Status{}, err
	}
	if standing, err = q.put(ctx, job); err != nil {
		err = errors.Join(err, refund(context.WithoutCancel(ctx)))
	}
	return standing, err
}

// put is Submit without its checks.
func (q *Queue) put(ctx context.Context, job queue.Job) (queue.Status, error) {
	for {
		rec, before, err := q.adopt(ctx, job)
		if err != nil {
			return queue.Status{}, err
		}
		if rec.State.Final() {
			return rec.Status, nil
		}
		missing, err := q.messageMissing(ctx, rec)
		if err != nil {
			return queue.Status{}, err
		}
		if !missing {
			return rec.Status, nil
		}
		rec, err = q.enqueue(ctx, rec)
		if errors.Is(err, queue.ErrFull) {
			return queue.Status{}, errors.Join(err, q.withdraw(ctx, rec, before))
		}
		if !errors.Is(err, errMoved) {
			return rec.Status, err
		}
	}
}

// adopt returns the record that stands for the job after creating it or queueing a failed one afresh, and the
// failed one that it replaced.
func (q *Queue) adopt(ctx context.Context, job queue.Job) (rec record, before *record, err error) {
	rec = record{Version: recordVersion, Life: nuid.Next(), Status: queue.Status{Job: job, State: queue.Queued, Updated: q.cfg.Clock().UTC()}}
	b, err := json.Marshal(rec)
	if err != nil {
		return rec, nil, fmt.Errorf("encode record of job %s: %w", job.ID, err)
	}
	call, cancel := q.call(ctx)
	_, err = q.jobs.Create(call, job.ID, b)
	cancel()
	if err == nil {
		return rec, nil, nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return rec, nil, q.fail(ctx, err, "record job %s", job.ID)
	}
	rec, err = q.change(ctx, job.ID, func(r *record) error {
		before = nil
		if r.State != queue.Failed {
			return errKeep
		}
		failed := *r
		before = &failed
		*r = record{Version: recordVersion, Life: rec.Life, Status: rec.Status, Generation: r.Generation + 1}
		return nil
	})
	return rec, before, err
}

// messageMissing says that the job's message never came into the queue or is gone from it.
func (q *Queue) messageMissing(ctx context.Context, rec record) (bool, error) {
	if rec.Sequence == 0 {
		return true, nil
	}
	call, cancel := q.call(ctx)
	defer cancel()
	s, err := q.js.Stream(call, jobsStream)
	if err != nil {
		return false, q.fail(ctx, err, "look for job %s in the queue", rec.Job.ID)
	}
	_, err = s.GetMsg(call, rec.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	if err != nil {
		return false, q.fail(ctx, err, "look for job %s in the queue", rec.Job.ID)
	}
	return false, nil
}

// errMoved says that the record changed under a Submit, which looks again.
var errMoved = errors.New("record moved")

// enqueue publishes the message of a record that has none and notes its sequence.
func (q *Queue) enqueue(ctx context.Context, rec record) (record, error) {
	var err error
	if rec.Sequence != 0 {
		if rec, err = q.forgetMessage(ctx, rec); err != nil {
			return rec, err
		}
	}
	call, cancel := q.call(ctx)
	defer cancel()
	afresh := rec.Generation > 0 && rec.Attempts == 0
	if afresh {
		// A job queued afresh begins its story again: whoever follows it must not stop at the old end.
		if err := q.events.Purge(call, jetstream.WithPurgeSubject(eventSubject(rec.Job.ID))); err != nil {
			return rec, q.fail(ctx, err, "clear events of job %s", rec.Job.ID)
		}
	}
	var letter uint64 // of the run before
	if afresh {
		if letter, err = q.lastLetter(call, rec.Job.ID); err != nil {
			return rec, q.fail(ctx, err, "look for the dead letter of job %s", rec.Job.ID)
		}
	}
	body, err := rec.Job.Encode()
	if err != nil {
		return rec, err
	}
	ack, err := q.js.Publish(call, jobSubject(rec.Job.Kind, rec.Job.Model, rec.Job.Priority), body, jetstream.WithMsgID(rec.messageID()))
	if isFull(err) {
		return rec, fmt.Errorf("submit job %s: %w (%w)", rec.Job.ID, queue.ErrFull, err)
	}
	if err != nil {
		return rec, q.fail(ctx, err, "submit job %s", rec.Job.ID)
	}
	generation := rec.Generation
	rec, err = q.change(ctx, rec.Job.ID, func(r *record) error {
		if r.Generation != generation || r.Sequence != 0 {
			return errKeep // a worker has taken it, or another submit was faster
		}
		r.Sequence = ack.Sequence
		return nil
	})
	if err != nil {
		return rec, err
	}
	q.ringFor(rec.Job)
	if letter > 0 {
		err = q.dropLetter(ctx, rec.Job.ID, letter)
	}
	return rec, err
}

// forgetMessage readies a record whose message is gone for another one: only a new id gets past the server's memory of
// the old.
func (q *Queue) forgetMessage(ctx context.Context, stale record) (record, error) {
	return q.change(ctx, stale.Job.ID, func(r *record) error {
		if r.Sequence != stale.Sequence || r.State.Final() {
			return errMoved
		}
		r.Generation++
		r.Sequence, r.Claim, r.State = 0, "", queue.Queued
		return nil
	})
}

// withdraw undoes adopt after the queue turned out to be full, so that the job does not look as if it waited.
func (q *Queue) withdraw(ctx context.Context, rec record, before *record) error {
	call, cancel := q.call(ctx)
	defer cancel()
	entry, err := q.jobs.Get(call, rec.Job.ID)
	if err != nil {
		return q.fail(ctx, err, "withdraw job %s", rec.Job.ID)
	}
	var now record
	if err := json.Unmarshal(entry.Value(), &now); err != nil {
		return fmt.Errorf("decode record of job %s: %w", rec.Job.ID, err)
	}
	if now.Sequence != 0 || now.Generation != rec.Generation {
		return nil // somebody else got it in
	}
	if before == nil {
		err = q.jobs.Delete(call, rec.Job.ID, jetstream.LastRevision(entry.Revision()))
	} else {
		var b []byte
		if b, err = json.Marshal(before); err == nil {
			_, err = q.jobs.Update(call, rec.Job.ID, b, entry.Revision())
		}
	}
	if err != nil && !isConflict(err) {
		return q.fail(ctx, err, "withdraw job %s", rec.Job.ID)
	}
	return nil
}

// Status returns what is known of a job; queue.ErrUnknown. Whoever looks first at a job whose deadline has passed while
// it waited ends it.
func (q *Queue) Status(ctx context.Context, id string) (queue.Status, error) {
	rec, err := q.change(ctx, id, func(r *record) error {
		if late, err := q.overdue(ctx, *r); err != nil {
			return err
		} else if !late {
			return errKeep
		}
		r.State = queue.Expired
		return nil
	})
	if err == nil && rec.changed {
		err = q.ended(ctx, rec)
	}
	return rec.Status, err
}

// SetStatus records state, result and reason; job and attempts are the queue's own. A word that would leave a final
// state, or that comes from an earlier attempt, is answered with queue.ErrLost.
func (q *Queue) SetStatus(ctx context.Context, s queue.Status) error {
	_, err := q.change(ctx, s.Job.ID, func(r *record) error {
		switch {
		case r.State.Final() && r.State == s.State:
			return errKeep
		case r.State.Final():
			return fmt.Errorf("set job %s from %s to %s: %w", s.Job.ID, r.State, s.State, queue.ErrLost)
		case s.Attempts > 0 && s.Attempts < r.Attempts:
			return fmt.Errorf("set status of job %s from attempt %d while %d stands: %w", s.Job.ID, s.Attempts, r.Attempts, queue.ErrLost)
		}
		r.State, r.Result, r.Dead = s.State, bytes.Clone(s.Result), s.Dead
		return nil
	})
	return err
}

// change reads a job's record, lets edit change it and writes it back, as often as somebody else was faster.
// It returns the record that stands. edit says errKeep to leave it; any other error is returned with the record.
func (q *Queue) change(ctx context.Context, id string, edit func(*record) error) (record, error) {
	if !validToken(id) {
		return record{}, fmt.Errorf("job %q: %w", id, queue.ErrUnknown)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	// What is remembered is as good as what is read where it is written back: the server takes it if nobody wrote since.
	if rec, revision := q.recall(id); revision != 0 && edit(&rec) == nil {
		if rec, err := q.write(ctx, call, rec, revision); !isConflict(err) {
			return rec, err
		}
	}
	for {
		entry, err := q.jobs.Get(call, id)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return record{}, fmt.Errorf("job %q: %w", id, queue.ErrUnknown)
		}
		if err != nil {
			return record{}, q.fail(ctx, err, "read record of job %s", id)
		}
		rec, err := decodeRecord(id, entry.Value())
		if err != nil {
			return record{}, err
		}
		q.remember(rec, id, entry.Revision())
		if err := edit(&rec); errors.Is(err, errKeep) {
			return rec, nil
		} else if err != nil {
			return rec, err
		}
		if rec, err = q.write(ctx, call, rec, entry.Revision()); !isConflict(err) {
			return rec, err
		}
	}
}

// write puts a record in place of its revision, and remembers it.
func (q *Queue) write(ctx, call context.Context, rec record, revision uint64) (record, error) {
	id := rec.Job.ID
	rec.Updated = q.cfg.Clock().UTC()
	b, err := json.Marshal(rec)
	if err != nil {
		return rec, fmt.Errorf("encode record of job %s: %w", id, err)
	}
	if err := q.fits(b, "record of job "+id); err != nil {
		return rec, err
	}
	revision, err = q.jobs.Update(call, id, b, revision)
	if err != nil {
		q.remember(record{}, id, 0)
		return rec, q.fail(ctx, err, "write record of job %s", id)
	}
	q.remember(rec, id, revision)
	rec.changed = true
	return rec, nil
}

// decodeRecord reads a record and refuses one that a later lector wrote.
func decodeRecord(id string, b []byte) (record, error) {
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil {
		return record{}, fmt.Errorf("decode record of job %s: %w", id, err)
	}
	if rec.Version != recordVersion {
		return record{}, fmt.Errorf("record of job %s has version %d: this lector reads version %d", id, rec.Version, recordVersion)
	}
	return rec, nil
}

// fits refuses what the server would refuse, with words that name it.
func (q *Queue) fits(b []byte, what string) error {
	if limit := q.nc.MaxPayload() - 1024; limit > 0 && int64(len(b)) > limit { // headers count too
		return fmt.Errorf("%s is %d bytes, more than the %d that a message of this server holds", what, len(b), limit)
	}
	return nil
}

// isConflict says that a compare-and-set found another revision. Replicated streams have a code of their own for it.
func isConflict(err error) bool {
	return errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) ||
		hasCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Codes of the server for a store that takes no more; the client library has no names for them.
const (
	codeInsufficientResources jetstream.ErrorCode = 10023
	codeStorageExceeded       jetstream.ErrorCode = 10047
	codeStoreFailed           jetstream.ErrorCode = 10077
)

// isFull says that the stream or the account is at a limit.
func isFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	return hasCode(err, codeInsufficientResources, codeStorageExceeded) ||
		api.ErrorCode == codeStoreFailed && strings.Contains(api.Description, "maximum")
}

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}
