package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"lector/queue"
)

type consumerKey struct {
	kind     queue.Kind
	priority string
}

// Next waits for a job of the queue's model and of one of the kinds, or of any kind when none is given. Priorities
// have turns by their weights. It asks for one message at a time, never leaving a request open: a message
// that nobody waits for any more would be stuck until AckWait.
func (q *Queue) Next(ctx context.Context, kinds ...queue.Kind) (queue.Delivery, error) {
	if q.cfg.Model == "" {
		return nil, errors.New("wait for a job: this queue was opened without a model, so it only submits and watches")
	}
	if len(kinds) == 0 {
		kinds = []queue.Kind{queue.Ingest, queue.Resume}
	}
	for {
		d, err := q.look(ctx, kinds)
		if err != nil && !q.away(ctx, err) && !errors.Is(err, queue.ErrLost) { // of a message that is somebody else's now
			return nil, err
		}
		if d != nil {
			q.ring(kinds...) // there may be more, and one ring wakes one waiter
			return d, nil
		}
		if err := q.wait(ctx, "wait for a job", q.listenTo(kinds)...); err != nil {
			return nil, err
		}
	}
}

// look takes the first job that is due, or nil when there is none now or the queue is paused.
func (q *Queue) look(ctx context.Context, kinds []queue.Kind) (*delivery, error) {
	gate, err := q.askGate(ctx)
	if gate == nil {
		return nil, err
	}
	defer gate.cancel()
	order := q.lookOrder()
	for _, priority := range order {
		for _, kind := range kinds {
			d, err := q.take(ctx, consumerKey{kind, priority}, gate)
			if d != nil {
				q.tookTurn(order, d.job)
			}
			if d != nil || err != nil {
				return d, err
			}
		}
	}
	return nil, nil
}

// take returns the first job of one consumer that is to be worked on, or nil when there is none now. Messages that stand
// for no job are settled on the way.
func (q *Queue) take(ctx context.Context, key consumerKey, gate *gate) (*delivery, error) {
	if q.wasEmpty(key) {
		return nil, nil
	}
	for {
		q.noteEmpty(key, true)
		msg, err := q.pull(ctx, key)
		if msg != nil || err != nil {
			q.noteEmpty(key, false)
		}
		if msg == nil || err != nil {
			return nil, err
		}
		if open, err := gate.open(); !open {
			q.handBack(msg, 0)
			return nil, err
		}
		// Not cut short by ctx: a claim whose answer is not awaited may count an attempt that nobody made.
		d, err := q.claim(context.WithoutCancel(ctx), msg)
		if err != nil {
			q.handBack(msg, q.cfg.AckWait) // what cannot be claimed must not keep the others from being looked at
			return nil, err
		}
		if d != nil {
			return d, nil
		}
	}
}

// pull fetches one message if there is one. It speaks to the server itself: the client library waits a second for the
// answer and cannot be told to stop, and a message that came later would be stuck until AckWait.
func (q *Queue) pull(ctx context.Context, key consumerKey) (*nats.Msg, error) {
	const doing = "wait for a job"
	if err := errors.Join(ctx.Err(), q.life.Err()); err != nil {
		return nil, q.fail(ctx, err, doing)
	}
	if q.nc.Status() != nats.CONNECTED {
		return nil, nil // a request now would be sent after the reconnect, when nobody waits for its answer
	}
	name, err := q.consumer(ctx, key)
	if err != nil {
		return nil, q.fail(ctx, err, doing)
	}
	answer, err := q.ask(name)
	if err != nil {
		return nil, q.fail(ctx, err, doing)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	msg, err := answer.NextMsgWithContext(call)
	if err != nil && ctx.Err() != nil {
		q.background(func() { q.returnLate(answer) })
		return nil, q.fail(ctx, err, doing)
	}
	_ = answer.Unsubscribe() // fails only where it is gone already
	if err == nil {
		msg, err = q.unwrap(msg, key)
	}
	if err != nil {
		return nil, q.fail(ctx, err, doing)
	}
	return msg, nil
}

// ask sends a pull for one message that is there now, and returns where the answer will come.
func (q *Queue) ask(consumer string) (*nats.Subscription, error) {
	inbox := q.nc.NewInbox()
	answer, err := q.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	request := fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", jobsStream, consumer)
	if err := q.nc.PublishRequest(request, inbox, []byte(`{"batch":1,"no_wait":true}`)); err != nil {
		return nil, errors.Join(err, answer.Unsubscribe())
	}
	return answer, nil
}

// unwrap tells a message from a status: the server answers a pull with either.
func (q *Queue) unwrap(msg *nats.Msg, key consumerKey) (*nats.Msg, error) {
	const noMessages, timeout, noResponders = "404", "408", "503"
	switch status := msg.Header.Get("Status"); status {
	case "":
		return msg, nil
	case noMessages, timeout:
		return nil, nil
	case noResponders:
		q.mu.Lock()
		delete(q.consumers, key) // made again at the next look
		q.mu.Unlock()
		return nil, nil
	default:
		return nil, fmt.Errorf("the server answers a pull with status %s, %s", status, msg.Header.Get("Description"))
	}
}

// returnLate hands back the message that answers a pull whose caller has gone.
func (q *Queue) returnLate(answer *nats.Subscription) {
	defer func() { _ = answer.Unsubscribe() }() // fails only where it is gone already
	ctx, cancel := context.WithTimeout(q.life, q.cfg.Timeout)
	defer cancel()
	if msg, err := answer.NextMsgWithContext(ctx); err == nil && msg.Header.Get("Status") == "" {
		q.handBack(msg, 0)
	}
}

// consumer returns the name of the consumer after making sure once that it exists.
func (q *Queue) consumer(ctx context.Context, key consumerKey) (string, error) {
	q.mu.Lock()
	name := q.consumers[key]
	q.mu.Unlock()
	if name != "" {
		return name, nil
	}
	if key.kind != queue.Ingest && key.kind != queue.Resume {
		return "", fmt.Errorf("there are no jobs of the kind %q", key.kind)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	name, err := q.ensureConsumer(call, key)
	if err != nil {
		return "", err
	}
	q.mu.Lock()
	q.consumers[key] = name
	q.mu.Unlock()
	return name, nil
}

// claim makes the delivery of a message the one that stands. It returns nil if the message stands for no job.
func (q *Queue) claim(ctx context.Context, msg *nats.Msg) (*delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, q.fail(ctx, err, "read a message of %s", jobsStream)
	}
	job, err := queue.DecodeJob(msg.Data)
	if err != nil {
		return nil, q.bury(ctx, msg, meta.Sequence.Stream, err)
	}
	d := &delivery{
		q: q, msg: msg, job: job, claim: nuid.Next(), extended: time.Now(), nudge: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	q.hold(d) // first: a cancellation that comes after the claim is not missed
	rec, err := q.claimFor(ctx, d, meta.Sequence.Stream)
	if err == nil && rec.Claim == d.claim {
		d.job, d.attempt, d.found = rec.Job, max(rec.Attempts, 1), rec.Status
		return d, nil
	}
	q.letGo(d)
	if errors.Is(err, errStray) {
		return nil, q.confirm(ctx, msg, ackOK, "drop a second message of job "+job.ID)
	}
	if err != nil {
		return nil, err
	}
	// It is of no use any more.
	return nil, errors.Join(q.tellEnded(ctx, rec), q.confirm(ctx, msg, ackOK, "drop expired job "+job.ID))
}

// claimFor writes a delivery's claim into the record of its job, unless the job's deadline has passed: the record that
// stands says which. errStray where another message stands for the job.
func (q *Queue) claimFor(ctx context.Context, d *delivery, seq uint64) (record, error) {
	edit := func(r *record) error {
		if r.Sequence != 0 && r.Sequence != seq {
			return errStray
		}
		r.Sequence = seq
		if late, err := q.overdue(ctx, *r); err != nil {
			return err
		} else if late {
			r.State = queue.Expired
			return nil
		}
		r.Claim = d.claim
		if !r.State.Final() {
			r.Attempts++
			r.State, r.Waits = queue.Running, ""
		}
		return nil
	}
	rec, err := q.change(ctx, d.job.ID, edit)
	if errors.Is(err, queue.ErrUnknown) {
		// Published by somebody who keeps no records: give it one, as Submit would have.
		if _, _, err = q.adopt(ctx, d.job); err == nil {
			rec, err = q.change(ctx, d.job.ID, edit)
		}
	}
	return rec, err
}

// errStray says that another message stands for the job.
var errStray = errors.New("another message stands for the job")

// bury rejects a message that is no job which this lector can read. Where it stands for one by its id, such as one of a later
// version, that job has failed, and whoever waits for it hears why.
func (q *Queue) bury(ctx context.Context, msg *nats.Msg, seq uint64, cause error) error {
	dead := queue.Dead{Class: "bad-job", Reason: cause.Error()}
	letter := queue.Letter{Name: fmt.Sprintf("seq-%d", seq), Dead: dead, At: q.cfg.Clock().UTC(), Raw: msg.Data}
	rec, err := q.standsFor(ctx, msg.Data, seq)
	if err != nil {
		return err
	}
	if rec != nil {
		letter.Name, letter.Job, letter.Attempts = rec.Job.ID, &rec.Job, rec.Attempts
	}
	if err := q.sendDead(ctx, fmt.Sprintf("seq-%d", seq), letter); err != nil {
		return err
	}
	if rec != nil {
		failed, err := q.change(ctx, rec.Job.ID, func(r *record) error {
			if r.State.Final() || r.Generation != rec.Generation {
				return errKeep
			}
			r.State, r.Dead = queue.Failed, &dead
			return nil
		})
		if err == nil && failed.changed {
			err = q.tellEnded(ctx, failed)
		}
		if err != nil {
			return err
		}
	}
	return q.confirm(ctx, msg, ackTerm, fmt.Sprintf("drop message %d, which holds no job", seq))
}

// standsFor is the record of the job for which a message stands that cannot be read as a job; nil where there is none.
func (q *Queue) standsFor(ctx context.Context, body []byte, seq uint64) (*record, error) {
	var named struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &named) != nil || !validToken(named.ID) {
		return nil, nil
	}
	rec, err := q.change(ctx, named.ID, func(*record) error { return errKeep })
	switch {
	case errors.Is(err, queue.ErrUnknown):
		return nil, nil
	case err != nil:
		return nil, err
	case rec.State.Final() || rec.Sequence != 0 && rec.Sequence != seq:
		return nil, nil
	}
	return &rec, nil
}

// handBack gives a message back that was never handed out. If it fails, the message comes again after AckWait.
func (q *Queue) handBack(msg *nats.Msg, after time.Duration) {
	if err := q.nc.Publish(msg.Reply, []byte(nak(after))); err != nil {
		q.cfg.Log(LevelWarn, "hand back a job: "+err.Error())
	}
}
