package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// Acknowledgements as the server reads them. They are sent as requests, since the server confirms each kind
// that has somewhere to reply to, while the client library asks for it with the first alone.
const (
	ackOK       = "+ACK"
	ackTerm     = "+TERM"
	ackProgress = "+WPI"
)

// nak gives a message back, to come again after the given time.
func nak(after time.Duration) string {
	if after <= 0 {
		return "-NAK"
	}
	return fmt.Sprintf(`-NAK {"delay":%d}`, after) // in nanoseconds
}

// delivery is one attempt at a job.
type delivery struct {
	q       *Queue
	msg     *nats.Msg
	job     queue.Job
	claim   string
	attempt int
	found   queue.Status

	known    record // as this queue wrote or read it last; guarded by the queue's lock, as is what follows
	revision uint64 // of known; 0: nothing is known
	extended time.Time

	nudge   chan struct{}
	turn    chan struct{} // held by the call in progress: a late Extend must not undo the delay of a Retry
	settled bool          // under turn
}

func (d *delivery) Job() queue.Job { return d.job }
func (d *delivery) Attempt() int   { return d.attempt }

// Standing is the status that the claim left.
func (d *delivery) Standing() queue.Status { return d.found }

// Nudged is sent to when somebody cancels the job.
func (d *delivery) Nudged() <-chan struct{} { return d.nudge }

// Extend restarts AckWait; queue.ErrLost once another delivery has claimed the job.
func (d *delivery) Extend(ctx context.Context) error {
	return d.do(ctx, "extend", func() error {
		rec, err := d.check(ctx)
		if err != nil {
			return err
		}
		if err := d.restartTimer(ctx); err != nil {
			return err
		}
		if rec.Cancel != nil && !rec.State.Final() {
			return fmt.Errorf("extend job %s: %w", d.job.ID, queue.ErrCancelled)
		}
		return nil
	})
}

// recently is the part of AckWait within which a timer need not be started again.
const recently = 16

func (d *delivery) restartTimer(ctx context.Context) error {
	d.q.mu.Lock()
	since := time.Since(d.extended)
	d.q.mu.Unlock()
	if since >= 0 && since < d.q.cfg.AckWait/recently {
		return nil
	}
	began := time.Now()
	if err := d.confirm(ctx, ackProgress, "extend"); err != nil {
		return err
	}
	d.q.mu.Lock()
	d.extended = began
	d.q.mu.Unlock()
	return nil
}

// Done returns after the server confirmed that the message is gone. A job that this delivery has brought to its end
// needs no other look: whoever else is delivered it finds the end, and drops it too.
func (d *delivery) Done(ctx context.Context) error {
	return d.settle(ctx, "finish", func() error {
		if !d.ended() {
			if _, err := d.check(ctx); err != nil {
				return err
			}
		}
		return d.confirm(ctx, ackOK, "finish")
	})
}

// ended says that this delivery's claim stood when the job came to a state that is never left.
func (d *delivery) ended() bool {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	return d.revision != 0 && d.known.Claim == d.claim && d.known.State.Final() && d.known.State != queue.Failed
}

// Retry gives the job back, to come again after the given time.
func (d *delivery) Retry(ctx context.Context, after time.Duration) error {
	return d.giveBack(ctx, "retry", back{attempts: d.attempt, after: after})
}

// Postpone gives the job back, to come again after the given time; the attempt is not counted.
func (d *delivery) Postpone(ctx context.Context, after time.Duration, why string) error {
	return d.giveBack(ctx, "postpone", back{attempts: d.attempt - 1, after: after, why: why})
}

// Release gives the job back at once; the attempt is not counted.
func (d *delivery) Release(ctx context.Context) error {
	return d.giveBack(ctx, "release", back{attempts: d.attempt - 1})
}

// back is how a job goes back to those that wait.
type back struct {
	attempts int
	after    time.Duration
	why      string
}

// giveBack writes the record first: once the message is back, the record is the next worker's.
func (d *delivery) giveBack(ctx context.Context, doing string, b back) error {
	return d.settle(ctx, doing, func() error {
		rec, err := d.mark(ctx, queue.Queued, b, nil)
		if err != nil {
			return err
		}
		if rec.State == queue.Cancelled && rec.changed {
			return errors.Join(d.q.tellEnded(ctx, rec), d.confirm(ctx, ackOK, "end"))
		}
		if err := d.confirm(ctx, nak(b.after), doing); err != nil {
			return err
		}
		if b.after <= 0 {
			d.q.ringFor(d.job)
		}
		return nil
	})
}

// Reject stores the dead letter before the job counts as failed, and takes the message out last: a crash in between
// repeats, and loses neither the job nor its reason.
func (d *delivery) Reject(ctx context.Context, dead queue.Dead) error {
	return d.settle(ctx, "reject", func() error {
		if _, err := d.check(ctx); err != nil {
			return err
		}
		letter := queue.Letter{Name: d.job.ID, Job: &d.job, Dead: dead, Attempts: d.attempt, At: d.q.cfg.Clock().UTC()}
		if err := d.q.sendDead(ctx, d.job.ID+"."+d.claim, letter); err != nil {
			return err
		}
		if _, err := d.mark(ctx, queue.Failed, back{attempts: d.attempt}, &dead); err != nil {
			return err
		}
		return d.confirm(ctx, ackTerm, "reject")
	})
}

// check reads whether this delivery stands.
func (d *delivery) check(ctx context.Context) (record, error) {
	return d.q.change(ctx, d.job.ID, func(r *record) error {
		if r.Claim != d.claim {
			return d.lost()
		}
		return errKeep
	})
}

// mark records the state in which this delivery leaves the job. Repeating it is harmless.
func (d *delivery) mark(ctx context.Context, s queue.State, b back, dead *queue.Dead) (record, error) {
	return d.q.change(ctx, d.job.ID, func(r *record) error {
		if r.Claim != d.claim {
			return d.lost()
		}
		if r.State.Final() {
			return errKeep
		}
		r.State, r.Attempts, r.Waits, r.Dead = s, b.attempts, b.why, dead
		if s == queue.Queued && r.Cancel != nil {
			r.State = queue.Cancelled // it shall not begin again
		}
		return nil
	})
}

func (d *delivery) lost() error {
	return fmt.Errorf("attempt %d of job %s: %w", d.attempt, d.job.ID, queue.ErrLost)
}

// settle runs the one settlement that succeeds.
func (d *delivery) settle(ctx context.Context, doing string, f func() error) error {
	return d.do(ctx, doing, func() error {
		if err := f(); err != nil {
			return err
		}
		d.settled = true
		d.q.letGo(d)
		return nil
	})
}

// do runs one call at a time, and none after the settlement.
func (d *delivery) do(ctx context.Context, doing string, f func() error) error {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return d.q.fail(ctx, ctx.Err(), "%s job %s", doing, d.job.ID)
	}
	if d.settled {
		return fmt.Errorf("%s job %s, which is settled already: %w", doing, d.job.ID, queue.ErrLost)
	}
	return f()
}

func (d *delivery) confirm(ctx context.Context, word, doing string) error {
	return d.q.confirm(ctx, d.msg, word, doing+" job "+d.job.ID)
}

// confirm sends an acknowledgement and waits for the server's answer.
func (q *Queue) confirm(ctx context.Context, msg *nats.Msg, word, doing string) error {
	call, cancel := q.call(ctx)
	defer cancel()
	_, err := q.nc.RequestWithContext(call, msg.Reply, []byte(word))
	if errors.Is(err, nats.ErrNoResponders) {
		// The consumer that delivered it is gone, and the message with it or with a new owner.
		return fmt.Errorf("%s: %w", doing, queue.ErrLost)
	}
	if err != nil {
		return q.fail(ctx, err, "%s", doing)
	}
	return nil
}

// sendDead stores a dead letter under the name of its job or message. id makes a repeat of the same letter one.
func (q *Queue) sendDead(ctx context.Context, id string, letter queue.Letter) error {
	b, err := json.Marshal(letter)
	if err != nil {
		return fmt.Errorf("encode dead letter of %s: %w", letter.Name, err)
	}
	if err := q.fits(b, "dead letter of "+letter.Name); err != nil {
		letter.Raw = nil // base64 of a full message does not fit one
		if b, err = json.Marshal(letter); err != nil {
			return fmt.Errorf("encode dead letter of %s: %w", letter.Name, err)
		}
	}
	call, cancel := q.call(ctx)
	defer cancel()
	if _, err := q.js.Publish(call, deadSubject(letter.Name), b, jetstream.WithMsgID(id)); err != nil {
		return q.fail(ctx, err, "store dead letter of %s", letter.Name)
	}
	return nil
}
