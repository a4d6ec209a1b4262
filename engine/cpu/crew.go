package cpu

import (
	"runtime"
	"sync/atomic"
	"time"
)

// crew are the goroutines that help the callers of parallel. Starting one, and waking a processor for it, takes as long
// as a small operation; so a helper looks out for the next job for a moment before it ends.
type crew struct {
	jobs    spares[job]
	helpers atomic.Int64  // those that are alive
	alive   []atomic.Bool // by worker; the first is whoever calls

	_   [128]byte
	job atomic.Pointer[job] // the newest. What helpers look at lies apart from what a caller writes
	_   [128]byte
}

const (
	// patience is how long a helper looks out for a job: longer than what lies between the operations of a token, and than it
	// takes to wake a processor again.
	patience = 300 * time.Microsecond
	// soon is how long a worker looks out for another. Whoever sleeps is woken on the processor of him who wakes
	// it, where the two get in each other's way while another processor is idle: so that none sleeps within a token.
	soon = 200 * time.Microsecond
	// nap is how long it sleeps after that before it looks again.
	nap = 20 * time.Microsecond
	// glances is how often it looks before it lets other goroutines run: about as long as that takes.
	glances = 512
)

// run carries a job out together with the helpers.
func (c *crew) run(b *Backend, t task, phases []phase) {
	j := c.take(b)
	j.laps = b.lapsOf(j)
	j.set(t, phases)
	c.post(b, j)
	c.finish(b, j, 0)
}

// begin lets the helpers begin with a job whose phases are added as they are known, and which complete ends.
func (c *crew) begin(b *Backend, t task) *job {
	j := c.take(b)
	j.laps = nil
	j.open(t)
	c.post(b, j)
	return j
}

// complete takes part in a job that has all of its phases, and returns when it is done.
func (c *crew) complete(b *Backend, j *job) {
	j.known.Store(j.known.Load() | complete)
	c.finish(b, j, j.enter())
}

func (c *crew) take(b *Backend) *job {
	j := c.jobs.get()
	if j == nil || j.last == maxTurns {
		j = newJob(b.workers)
	}
	return j
}

// post shows a job to the helpers.
func (c *crew) post(b *Backend, j *job) {
	if c.job.Load() != j {
		c.job.Store(j)
	}
	if c.helpers.Load() < int64(b.workers-1) {
		c.staff(b)
	}
}

// finish works on a job until it is done, and raises what panicked.
func (c *crew) finish(b *Backend, j *job, from int) {
	s := b.scratch.get(b)
	j.workFrom(s, 0, j.last, from)
	b.scratch.put(s)
	j.settle()
	if j.laps != nil {
		b.countJob(j, j.task)
	}
	failed := j.failed.Load()
	j.task, j.begins = nil, nil // or it would keep what they refer to
	c.jobs.put(j)
	if failed != nil {
		panic(*failed)
	}
}

// staff starts the helpers that are missing.
func (c *crew) staff(b *Backend) {
	for w := 1; w < b.workers; w++ {
		if c.hire(w) {
			go c.help(b, w)
		}
	}
}

// hire says whether there was no helper w, and counts one.
func (c *crew) hire(w int) bool {
	if c.alive[w].Load() || !c.alive[w].CompareAndSwap(false, true) {
		return false
	}
	c.helpers.Add(1)
	return true
}

// help takes part in job after job until none comes for a while. A job that comes as a helper ends may have counted on
// it: so it looks once more after it said that it is gone.
func (c *crew) help(b *Backend, me int) {
	s := b.scratch.get(b)
	defer b.scratch.put(s)
	for {
		c.lookOut(s, me)
		c.helpers.Add(-1)
		c.alive[me].Store(false)
		if j := c.job.Load(); !j.waits(me) || !c.hire(me) {
			return
		}
	}
}

// lookOut takes part in job after job until none came for as long as patience.
func (c *crew) lookOut(s *scratch, me int) {
	for idle := time.Now(); time.Since(idle) < patience; runtime.Gosched() {
		if c.glance(s, me) {
			idle = time.Now()
		}
	}
}

// glance looks out for a while, and says whether there is reason to go on.
func (c *crew) glance(s *scratch, me int) (came bool) {
	j := c.job.Load()
	for range glances {
		if turn := j.join(me); turn != 0 {
			j.work(s, me, turn)
			came = true
		}
		j = c.job.Load()
	}
	return came || j.busy() // its caller is at the last items, and comes with the next job soon after
}
