package queuetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"lector/queue"
)

// DefaultAckWait is how long a delivery of a Memory stands without Extend.
const DefaultAckWait = 30 * time.Second

// Memory is a queue.Queue in memory. It hands out jobs of every model.
type Memory struct {
	clock Clock
	state *state // survives Restart

	life context.Context // ends with Close
	end  context.CancelFunc
}

// state is what a restart keeps. mu guards all of it.
type state struct {
	mu      sync.Mutex
	ackWait time.Duration
	limit   int // jobs that may wait at once; 0: any number
	changed chan struct{}
	count   uint64 // claims and lease revisions given so far
	jobs    map[string]*job
	events  map[string][]queue.Event
	handles map[string][]byte
	leases  map[string]*claim
	credit  map[string]int // of priorities: see turn
	letters map[string]queue.Letter
	pause   *queue.Pause
	quotas  quotas
	rules   []*Rule
	calls   map[string]int
}

// job is a job's record, and its message if it is in the queue.
type job struct {
	status queue.Status
	order  uint64 // of submission
	queued bool   // the message is in the queue, whether delivered or not
	holder uint64 // the delivery that has it; 0: nobody
	due    time.Time
	nudge  chan struct{} // of the delivery that has it
}

var _ queue.Queue = (*Memory)(nil)

// NewMemory returns an empty queue that reads the time from clock; nil is Wall.
func NewMemory(clock Clock) *Memory {
	if clock == nil {
		clock = Wall{}
	}
	return newMemory(clock, &state{
		ackWait: DefaultAckWait,
		changed: make(chan struct{}),
		jobs:    map[string]*job{},
		events:  map[string][]queue.Event{},
		handles: map[string][]byte{},
		letters: map[string]queue.Letter{},
		quotas:  quotas{set: map[string]queue.Quota{}, tokens: map[string]int64{}},
		leases:  map[string]*claim{},
		credit:  map[string]int{},
		calls:   map[string]int{},
	})
}

func newMemory(clock Clock, s *state) *Memory {
	life, end := context.WithCancel(context.Background())
	return &Memory{clock: clock, state: s, life: life, end: end}
}

// Close ends every waiting call with queue.ErrClosed. What the queue holds is kept for Restart.
func (m *Memory) Close() error {
	m.end()
	return nil
}

// Submit stores the job unless a job with its id stands that did not fail.
func (m *Memory) Submit(ctx context.Context, order queue.Job) (queue.Status, error) {
	var standing queue.Status
	err := m.do(ctx, "Submit", order.ID, func() error {
		body, err := order.Encode()
		if err != nil {
			return err
		}
		if order, err = queue.DecodeJob(body); err != nil { // the caller's slices stay the caller's
			return err
		}
		standing, err = m.submit(order)
		return err
	})
	return standing, err
}

func (m *Memory) submit(order queue.Job) (queue.Status, error) {
	s := m.state
	j := s.jobs[order.ID]
	if j != nil {
		m.expire(j)
	}
	settled := j != nil && j.status.State.Final() && j.status.State != queue.Failed
	if settled || j != nil && j.queued && j.status.State != queue.Failed {
		return copyStatus(j.status), nil
	}
	if s.limit > 0 && s.waiting() >= s.limit {
		return queue.Status{}, fmt.Errorf("submit job %s: %w", order.ID, queue.ErrFull)
	}
	now := m.clock.Now()
	if j == nil || j.status.State == queue.Failed {
		if err := m.admit(order, j != nil); err != nil {
			return queue.Status{}, err
		}
		if j != nil {
			j.holder = 0 // a delivery of the failed run has nothing to say on the new one
		}
		j = &job{status: queue.Status{Job: order, State: queue.Queued, Updated: now}}
		s.jobs[order.ID] = j
		delete(s.events, order.ID) // the story begins again
		delete(s.letters, order.ID)
	}
	j.status.State = queue.Queued // also of a job whose message was taken out without a last word
	j.order, j.queued, j.holder, j.due = s.next(), true, 0, now
	return copyStatus(j.status), nil
}

// Status returns what is known of a job; queue.ErrUnknown.
func (m *Memory) Status(ctx context.Context, id string) (queue.Status, error) {
	var st queue.Status
	err := m.do(ctx, "Status", id, func() error {
		j, err := m.state.job(id)
		if err == nil {
			m.expire(j)
			st = copyStatus(j.status)
		}
		return err
	})
	return st, err
}

// SetStatus records state, result and reason; job and attempts are the queue's own. A word that would leave a final
// state, or that comes from an earlier attempt, is answered with queue.ErrLost.
func (m *Memory) SetStatus(ctx context.Context, st queue.Status) error {
	return m.do(ctx, "SetStatus", st.Job.ID, func() error {
		j, err := m.state.job(st.Job.ID)
		if err != nil {
			return err
		}
		return j.set(st, m.clock.Now())
	})
}

func (j *job) set(st queue.Status, now time.Time) error {
	switch {
	case j.status.State.Final() && j.status.State == st.State:
		return nil
	case j.status.State.Final():
		return fmt.Errorf("set job %s from %s to %s: %w", st.Job.ID, j.status.State, st.State, queue.ErrLost)
	case st.Attempts > 0 && st.Attempts < j.status.Attempts:
		return fmt.Errorf("set status of job %s from attempt %d while %d stands: %w", st.Job.ID, st.Attempts, j.status.Attempts, queue.ErrLost)
	}
	j.status.State, j.status.Result, j.status.Dead, j.status.Updated = st.State, bytes.Clone(st.Result), st.Dead, now
	return nil
}

// Next waits for a job of one of the kinds, or of any kind when none is given. Of the jobs that are due it takes
// priorities by their turns, and each in the order of submission.
func (m *Memory) Next(ctx context.Context, kinds ...queue.Kind) (queue.Delivery, error) {
	for {
		var d *delivery
		var wait <-chan time.Time
		var changed chan struct{}
		err := m.do(ctx, "Next", "", func() error {
			d, wait = m.take(kinds)
			changed = m.state.changed
			return nil
		})
		if err != nil {
			return nil, err
		}
		if d != nil {
			return d, nil
		}
		select {
		case <-ctx.Done():
		case <-m.life.Done():
		case <-changed:
		case <-wait:
		}
	}
}

// take claims the first job that is due, or says when to look again.
func (m *Memory) take(kinds []queue.Kind) (*delivery, <-chan time.Time) {
	if m.state.pause != nil {
		return nil, nil
	}
	now := m.clock.Now()
	due := map[string]*job{} // the first of each priority
	var soonest time.Duration
	for _, j := range m.state.jobs {
		m.expire(j)
		if !j.queued || len(kinds) > 0 && !slices.Contains(kinds, j.status.Job.Kind) {
			continue
		}
		if left := j.due.Sub(now); left > 0 {
			if soonest == 0 || left < soonest {
				soonest = left
			}
			continue
		}
		if first := due[j.status.Job.Priority]; first == nil || j.order < first.order {
			due[j.status.Job.Priority] = j
		}
	}
	if best := m.state.turn(due); best != nil {
		return m.claim(best), nil
	}
	if soonest > 0 {
		return nil, m.clock.After(soonest)
	}
	return nil, nil
}

// turn chooses by how many turns each priority had: of seven jobs that wait in each, four are high, two normal, one low.
func (s *state) turn(due map[string]*job) *job {
	weight := func(p string) int {
		if w, ok := map[string]int{"high": 4, "low": 1}[p]; ok {
			return w
		}
		return 2
	}
	var best *job
	round := 0
	for p, j := range due {
		s.credit[p] += weight(p)
		round += weight(p)
		if best == nil || cmp.Or(cmp.Compare(s.credit[best.status.Job.Priority], s.credit[p]), cmp.Compare(j.order, best.order)) < 0 {
			best = j
		}
	}
	for p := range s.credit {
		if due[p] == nil {
			s.credit[p] = 0
		}
	}
	if best != nil {
		s.credit[best.status.Job.Priority] -= round
	}
	return best
}

// claim gives the job to a new delivery; whoever had it before has lost it.
func (m *Memory) claim(j *job) *delivery {
	now := m.clock.Now()
	j.holder, j.due = m.state.next(), now.Add(m.state.ackWait)
	if !j.status.State.Final() {
		j.status.Attempts++
		j.status.State, j.status.Waits, j.status.Updated = queue.Running, "", now
	}
	j.nudge = make(chan struct{}, 1)
	found := copyStatus(j.status)
	return &delivery{
		m: m, j: j, job: found.Job, claim: j.holder, attempt: max(j.status.Attempts, 1), found: found, nudge: j.nudge,
	}
}

// Publish appends an event to the job's story.
func (m *Memory) Publish(ctx context.Context, e queue.Event) error {
	return m.do(ctx, "Publish", e.Job, func() error {
		c, err := clone(e)
		if err != nil {
			return err
		}
		m.state.events[e.Job] = append(m.state.events[e.Job], c)
		return nil
	})
}

// Follow yields the job's events so far and from now on. A job that is not known yet has none so far.
func (m *Memory) Follow(ctx context.Context, id string, yield func(queue.Event) bool) error {
	for seen := 0; ; {
		var fresh []queue.Event
		var changed chan struct{}
		err := m.do(ctx, "Follow", id, func() error {
			story := m.state.events[id]
			seen = min(seen, len(story)) // a job queued afresh begins its story again
			fresh = slices.Clone(story[seen:])
			changed = m.state.changed
			return nil
		})
		if err != nil {
			return err
		}
		seen += len(fresh)
		for _, e := range fresh {
			if !yield(e) {
				return nil
			}
		}
		if len(fresh) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-m.life.Done():
		case <-changed:
		}
	}
}

// PublishHandle stores body if the job has no handle, and returns the body that stands.
func (m *Memory) PublishHandle(ctx context.Context, id string, body []byte) ([]byte, error) {
	var standing []byte
	err := m.do(ctx, "PublishHandle", id, func() error {
		if _, ok := m.state.handles[id]; !ok {
			m.state.handles[id] = append([]byte{}, body...)
		}
		standing = bytes.Clone(m.state.handles[id])
		return nil
	})
	return standing, err
}

// Handle returns the job's handle; queue.ErrUnknown.
func (m *Memory) Handle(ctx context.Context, id string) ([]byte, error) {
	var body []byte
	err := m.do(ctx, "Handle", id, func() error {
		standing, ok := m.state.handles[id]
		if !ok {
			return fmt.Errorf("handle of job %q: %w", id, queue.ErrUnknown)
		}
		body = bytes.Clone(standing)
		return nil
	})
	return body, err
}

// do runs one call under the lock, with the faults that the rules ask for, and tells those who wait.
func (m *Memory) do(ctx context.Context, op, name string, call func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, name, err)
	}
	if m.life.Err() != nil {
		return fmt.Errorf("%s %s: %w", op, name, queue.ErrClosed)
	}
	s := m.state
	s.mu.Lock()
	defer s.mu.Unlock()
	rule := s.fault(op, name)
	if rule != nil && !rule.After {
		return fmt.Errorf("%s %s: %w", op, name, rule.Err)
	}
	err := call()
	if op != "Next" && op != "Follow" && op != "Status" && op != "Handle" && op != "Paused" && op != "List" && op != "Use" && op != "DeadLetters" {
		s.tell()
	}
	if rule != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", op, name, rule.Err), err)
	}
	return err
}

// tell wakes every call that waits for a change.
func (s *state) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *state) next() uint64 {
	s.count++
	return s.count
}

func (s *state) waiting() int {
	n := 0
	for _, j := range s.jobs {
		if j.queued {
			n++
		}
	}
	return n
}

func (s *state) job(id string) (*job, error) {
	if j := s.jobs[id]; j != nil {
		return j, nil
	}
	return nil, fmt.Errorf("job %q: %w", id, queue.ErrUnknown)
}

// clone makes a value that shares nothing with the caller's, in the way a wire would.
func clone[T any](v T) (T, error) {
	var c T
	b, err := json.Marshal(v)
	if err != nil {
		return c, fmt.Errorf("encode %T: %w", v, err)
	}
	return c, json.Unmarshal(b, &c)
}

// copyStatus clones a status that the queue itself made, which always encodes.
func copyStatus(s queue.Status) queue.Status {
	c, err := clone(s)
	if err != nil {
		return s
	}
	return c
}
