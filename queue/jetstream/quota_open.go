package jetstream

import (
	"context"
	"time"

	"lector/queue"
)

const (
	// settleAge is after how long every queue heeds a quota that was set, and its submits are counted.
	settleAge = 2 * quotaAge
	// countAge bounds how long a lector that counts nothing, one from before there were counts, can lead it astray.
	countAge = time.Minute
	// maxRecent bounds the record: with so many submits since the last count it is time for the next.
	maxRecent = 128
)

// openCount is how many jobs a tenant has that have not ended: never fewer than there are. A submit adds itself before it
// writes its job's record; jobs that end are taken off when the records are counted again, which is when there seems to be
// no room.
type openCount struct {
	N       int       `json:"n"`
	Counted time.Time `json:"counted"` // by the server's clock, before the records were read
	// Recent are the submits since, which N has: the record of each may not be there yet when they are counted.
	Recent map[string]recent `json:"recent,omitempty"`
}

// recent is a submit that was let in.
type recent struct {
	At    time.Time `json:"at"` // by the server's clock
	Again bool      `json:"again,omitempty"`
}

// entry is a job that asks for a place among the open ones.
type entry struct {
	job   queue.Job
	again bool // it failed before
	most  int  // jobs that may be open
	set   time.Time
}

// enterOpen adds a job to the count, and returns how many others are open: at least most where there is no room.
func (q *Queue) enterOpen(ctx context.Context, c *tenantCount, e entry) (int, error) {
	now, err := q.nowFor(ctx)
	if err != nil {
		return 0, err
	}
	tenant := e.job.Owner()
	if c.Open.stale(now, e.set) || c.Open.full(e) && !q.foundFull(tenant) {
		if c.Open, err = q.countOpen(ctx, tenant, c.Open, now); err != nil {
			return 0, err
		}
		if c.Open.full(e) {
			q.noteFull(tenant)
		}
	}
	return c.Open.enter(e, now), nil
}

// stale says that the count may have missed jobs, or has become long.
func (o *openCount) stale(now, set time.Time) bool {
	settled := set.Add(settleAge)
	return o == nil || o.Counted.Before(set) || o.Counted.Before(settled) && !now.Before(settled) ||
		now.Sub(o.Counted) > countAge || len(o.Recent) >= maxRecent
}

func (o *openCount) full(e entry) bool {
	_, in := o.Recent[e.job.ID]
	return !in && o.N >= e.most
}

// enter adds a job, which N may have already, and returns how many others there are.
func (o *openCount) enter(e entry, now time.Time) int {
	if o.Recent == nil {
		o.Recent = map[string]recent{}
	}
	if _, in := o.Recent[e.job.ID]; !in {
		o.N++
	}
	o.Recent[e.job.ID] = recent{now, e.again}
	return o.N - 1
}

// countOpen counts the records of a tenant's open jobs, and those recent submits whose record is not there.
func (q *Queue) countOpen(ctx context.Context, tenant string, before *openCount, now time.Time) (*openCount, error) {
	o := &openCount{Counted: now, Recent: map[string]recent{}}
	if before != nil {
		for id, r := range before.Recent {
			if now.Sub(r.At) < q.submitLife() {
				o.Recent[id] = r
			}
		}
	}
	err := q.List(ctx, func(s queue.Status) bool {
		if s.Job.Owner() == tenant {
			o.record(s)
		}
		return true
	})
	o.N += len(o.Recent)
	return o, err
}

// record counts a record: what is known of its job by it is not recent any more. One that says how a job failed tells
// nothing of the submit that is to run it again.
func (o *openCount) record(s queue.Status) {
	if !s.State.Final() {
		o.N++
	} else if o.Recent[s.Job.ID].Again {
		return
	}
	delete(o.Recent, s.Job.ID)
}

// submitLife is longer than any submit that was let in takes to write its record: it waits for a connection, then for
// answers.
func (q *Queue) submitLife() time.Duration { return q.cfg.AckWait + 2*q.cfg.Timeout }

// foundFull says that this queue counted a moment ago and found no room: until quotaAge has passed, that stands.
func (q *Queue) foundFull(tenant string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Now().Before(q.quota.full[tenant])
}

func (q *Queue) noteFull(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.quota.full[tenant] = time.Now().Add(quotaAge)
}
