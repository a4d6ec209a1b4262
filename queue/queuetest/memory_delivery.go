package queuetest

import (
	"context"
	"fmt"
	"time"

	"lector/queue"
)

// delivery is one attempt at a job of a Memory. Its fields but settled never change; settled is under the state's lock.
type delivery struct {
	m       *Memory
	j       *job
	job     queue.Job
	claim   uint64
	attempt int
	found   queue.Status
	nudge   chan struct{}
	settled bool
}

func (d *delivery) Job() queue.Job { return d.job }
func (d *delivery) Attempt() int   { return d.attempt }

// Standing is the status that the claim left.
func (d *delivery) Standing() queue.Status { return d.found }

// Nudged is sent to when somebody cancels the job.
func (d *delivery) Nudged() <-chan struct{} { return d.nudge }

// Extend gives the delivery another AckWait.
func (d *delivery) Extend(ctx context.Context) error {
	cancelled := false
	err := d.do(ctx, "Extend", func() {
		d.j.due = d.m.clock.Now().Add(d.m.state.ackWait)
		cancelled = d.j.status.Cancel != nil && !d.j.status.State.Final()
	})
	if err == nil && cancelled {
		return fmt.Errorf("Extend attempt %d of job %s: %w", d.attempt, d.job.ID, queue.ErrCancelled)
	}
	return err
}

// Done takes the job out of the queue.
func (d *delivery) Done(ctx context.Context) error {
	return d.settle(ctx, "Done", func() { d.j.queued = false })
}

// Retry makes the job due again after the given time.
func (d *delivery) Retry(ctx context.Context, after time.Duration) error {
	return d.settle(ctx, "Retry", func() { d.giveBack(d.attempt, after, "") })
}

// Postpone makes the job due after the given time, as if it had not been delivered.
func (d *delivery) Postpone(ctx context.Context, after time.Duration, why string) error {
	return d.settle(ctx, "Postpone", func() { d.giveBack(d.attempt-1, after, why) })
}

// Release makes the job due now, as if it had not been delivered.
func (d *delivery) Release(ctx context.Context) error {
	return d.settle(ctx, "Release", func() { d.giveBack(d.attempt-1, 0, "") })
}

// Reject takes the job out of the queue as failed.
func (d *delivery) Reject(ctx context.Context, dead queue.Dead) error {
	return d.settle(ctx, "Reject", func() {
		d.j.queued = false
		letter := copyStatus(d.j.status)
		d.m.state.letters[d.job.ID] = queue.Letter{Name: d.job.ID, Job: &letter.Job, Dead: dead, Attempts: d.attempt, At: d.m.clock.Now()}
		if !d.j.status.State.Final() {
			d.j.status.State, d.j.status.Dead, d.j.status.Updated = queue.Failed, &dead, d.m.clock.Now()
		}
	})
}

func (d *delivery) giveBack(attempts int, after time.Duration, why string) {
	now := d.m.clock.Now()
	d.j.holder, d.j.due = 0, now.Add(after)
	if !d.j.status.State.Final() {
		d.j.status.State, d.j.status.Attempts, d.j.status.Waits, d.j.status.Updated = queue.Queued, attempts, why, now
		if c := d.j.status.Cancel; c != nil {
			d.m.endWaiting(d.j, queue.Cancelled, c.Reason)
		}
	}
}

func (d *delivery) settle(ctx context.Context, op string, effect func()) error {
	return d.do(ctx, op, func() {
		effect()
		d.settled = true
	})
}

// do runs the effect if the delivery still has the job.
func (d *delivery) do(ctx context.Context, op string, effect func()) error {
	return d.m.do(ctx, op, d.job.ID, func() error {
		if d.settled {
			return fmt.Errorf("%s of a settled delivery of job %s: %w", op, d.job.ID, queue.ErrLost)
		}
		if d.j.holder != d.claim {
			return fmt.Errorf("%s attempt %d of job %s: %w", op, d.attempt, d.job.ID, queue.ErrLost)
		}
		effect()
		return nil
	})
}
