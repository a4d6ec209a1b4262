package queuetest

import (
	"fmt"
	"slices"
	"time"

	"lector/queue"
)

// Rule makes one call fail.
type Rule struct {
	// Op is the name of the method: Submit, Status, SetStatus, Next, Extend, Done, Retry, Release, Reject, Publish,
	// Follow, PublishHandle, Handle, Acquire, Renew, or ReleaseLease for the Release of a lease.
	Op string
	// Name is the job or lease the call is about; empty: any. Next is about none.
	Name string
	// Nth counts the calls that match from when the rule was given; 1 is the next one.
	Nth int
	// Err is what the call answers, wrapped.
	Err error
	// After lets the call have its effect first: a lost answer.
	After bool

	seen int
}

// String says what the rule does, for a failing test's output.
func (r Rule) String() string {
	when := "before"
	if r.After {
		when = "after"
	}
	return fmt.Sprintf("%s(%s) #%d fails %s its effect: %v", r.Op, r.Name, r.Nth, when, r.Err)
}

// Fail adds a rule. Each rule fires once.
func (m *Memory) Fail(r Rule) {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	m.state.rules = append(m.state.rules, &r)
}

// fault counts the call and returns the rule that fires on it, which is then spent.
func (s *state) fault(op, name string) *Rule {
	s.calls[op]++
	var fires *Rule
	for _, r := range s.rules {
		if r.Op != op || r.Name != "" && r.Name != name {
			continue
		}
		if r.seen++; r.seen == r.Nth && fires == nil {
			fires = r
		}
	}
	s.rules = slices.DeleteFunc(s.rules, func(r *Rule) bool { return r == fires })
	return fires
}

// Calls returns how many calls of op were made, those that failed included. A Next or Follow that waits counts
// each look.
func (m *Memory) Calls(op string) int {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	return m.state.calls[op]
}

// SetAckWait changes how long deliveries from now on stand without Extend.
func (m *Memory) SetAckWait(d time.Duration) {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	m.state.ackWait = d
}

// SetLimit makes Submit answer queue.ErrFull while n jobs are in the queue; 0 lifts the limit.
func (m *Memory) SetLimit(n int) {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	m.state.limit = n
}

// Expire ends the time of the job's delivery now: it is lost at once, and the job is due. It says whether
// the job was delivered.
func (m *Memory) Expire(id string) bool {
	return m.poke(id, func(j *job) bool {
		if !j.queued || j.holder == 0 {
			return false
		}
		j.holder, j.due = 0, m.clock.Now()
		return true
	})
}

// Duplicate makes the job due once more, settled or not, as after an acknowledgement that got lost. It says whether
// the job is known.
func (m *Memory) Duplicate(id string) bool {
	return m.poke(id, func(j *job) bool {
		j.queued, j.due = true, m.clock.Now()
		return true
	})
}

func (m *Memory) poke(id string, change func(*job) bool) bool {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	j := m.state.jobs[id]
	if j == nil || !change(j) {
		return false
	}
	m.state.tell()
	return true
}

// Events returns the job's story so far.
func (m *Memory) Events(id string) []queue.Event {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	return slices.Clone(m.state.events[id])
}

// Pending returns how many jobs are in the queue, delivered or not.
func (m *Memory) Pending() int {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	return m.state.waiting()
}

// Restart closes the queue as a killed owner would and returns its successor: jobs, events and handles are kept,
// leases and deliveries are void, and what was delivered is due at once.
func (m *Memory) Restart() *Memory {
	m.end()
	s := m.state
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.leases)
	for _, j := range s.jobs {
		j.holder, j.due = 0, m.clock.Now()
	}
	s.tell()
	return newMemory(m.clock, s)
}

// Due says that Next would hand out the job now.
func (m *Memory) Due(id string) bool {
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	j := m.state.jobs[id]
	return j != nil && j.queued && !j.due.After(m.clock.Now())
}
