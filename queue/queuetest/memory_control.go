package queuetest

import (
	"context"
	"fmt"

	"lector/queue"
)

// Cancel ends a job that waits, and asks the one who has it to end it otherwise.
func (m *Memory) Cancel(ctx context.Context, id string, c queue.Cancellation) (queue.Status, error) {
	var st queue.Status
	err := m.do(ctx, "Cancel", id, func() error {
		j, err := m.state.job(id)
		if err != nil {
			return err
		}
		m.expire(j)
		if !j.status.State.Final() {
			if j.status.Cancel == nil {
				j.status.Cancel = &c
			}
			j.status.Updated = m.clock.Now()
			if j.status.State == queue.Queued {
				m.endWaiting(j, queue.Cancelled, c.Reason)
			} else if j.nudge != nil {
				select {
				case j.nudge <- struct{}{}:
				default:
				}
			}
		}
		st = copyStatus(j.status)
		return nil
	})
	return st, err
}

// expire ends a job whose deadline has passed while it waited.
func (m *Memory) expire(j *job) {
	deadline := j.status.Job.Deadline
	if j.status.State == queue.Queued && !deadline.IsZero() && !m.clock.Now().Before(deadline) {
		m.endWaiting(j, queue.Expired, "")
	}
}

// endWaiting ends one job that nobody works on, and tells.
func (m *Memory) endWaiting(j *job, s queue.State, reason string) {
	now := m.clock.Now()
	j.status.State, j.status.Updated, j.queued, j.holder = s, now, false, 0
	id := j.status.Job.ID
	m.state.events[id] = append(m.state.events[id], queue.Event{
		Version: 1, Job: id, Attempt: j.status.Attempts, Type: queue.EventEnded, At: now, State: s, Reason: reason,
	})
}

// List yields every job.
func (m *Memory) List(ctx context.Context, yield func(queue.Status) bool) error {
	var all []queue.Status
	err := m.do(ctx, "List", "", func() error {
		for _, j := range m.state.jobs {
			m.expire(j)
			all = append(all, copyStatus(j.status))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range all {
		if !yield(s) {
			return nil
		}
	}
	return nil
}

// DeadLetters yields every dead letter.
func (m *Memory) DeadLetters(ctx context.Context, yield func(queue.Letter) bool) error {
	var all []queue.Letter
	err := m.do(ctx, "DeadLetters", "", func() error {
		for _, l := range m.state.letters {
			c, err := clone(l)
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, l := range all {
		if !yield(l) {
			return nil
		}
	}
	return nil
}

// DropLetter removes a dead letter.
func (m *Memory) DropLetter(ctx context.Context, name string) error {
	return m.do(ctx, "DropLetter", name, func() error {
		if _, ok := m.state.letters[name]; !ok {
			return fmt.Errorf("dead letter %q: %w", name, queue.ErrUnknown)
		}
		delete(m.state.letters, name)
		return nil
	})
}

// Pause keeps Next waiting.
func (m *Memory) Pause(ctx context.Context, p queue.Pause) error {
	return m.do(ctx, "Pause", "", func() error { m.state.pause = &p; return nil })
}

// Unpause lets Next go on.
func (m *Memory) Unpause(ctx context.Context) error {
	return m.do(ctx, "Unpause", "", func() error { m.state.pause = nil; return nil })
}

// Paused returns the pause that stands, or nil.
func (m *Memory) Paused(ctx context.Context) (*queue.Pause, error) {
	var p *queue.Pause
	err := m.do(ctx, "Paused", "", func() error {
		if m.state.pause != nil {
			standing := *m.state.pause
			p = &standing
		}
		return nil
	})
	return p, err
}
