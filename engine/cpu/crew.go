package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// crew are the goroutines that help the callers of parallel. Starting one, and waking a processor for it, takes as long
// as a small operation; so a helper looks out for the next job for a moment before it ends.
type crew struct {
	job     atomic.Pointer[job] // the newest that may have items left
	helpers atomic.Int64        // those that are alive
	begun   atomic.Int64        // helpers so far: each has a part of a job to begin with
	jobs    sync.Pool           // of *job
}

const (
	// patience is how long a helper looks out for a job: longer than what lies between the operations of a token, and than it
	// takes to wake a processor again.
	patience = 300 * time.Microsecond
	// soon is how long the caller looks out for the end of a job. Whoever sleeps is woken on the processor of him who wakes
	// it, where the two get in each other's way while another processor is idle: so that none sleeps within a token.
	soon = 200 * time.Microsecond
	// glances is how often it looks before it lets other goroutines run: about as long as that takes.
	glances = 512
)

// run carries a job out together with the helpers.
func (c *crew) run(b *Backend, n, grain int, work func(s *scratch, from, to int)) {
	j, _ := c.jobs.Get().(*job)
	if j == nil {
		j = &job{wake: make(chan struct{}, 1), parts: make([]part, b.workers)}
	}
	j.set(n, grain, work)
	c.job.Store(j)
	for missing := int64(b.workers-1) - c.helpers.Load(); missing > 0; missing-- {
		c.helpers.Add(1)
		go c.help(b)
	}
	s := b.scratch.get(b)
	j.take(s, 0)
	b.scratch.put(s)
	j.settle()
	failed := j.failed.Load()
	c.job.CompareAndSwap(j, nil)
	j.work = nil // or the pool would keep what it refers to
	c.jobs.Put(j)
	if failed != nil {
		panic(*failed)
	}
}

// settle returns when no helper is inside. One that comes later finds no items, or those of the job's next use.
func (j *job) settle() {
	for start := time.Now(); time.Since(start) < soon; {
		for range glances {
			if j.inside.Load() == 0 {
				return
			}
		}
	}
	j.waiting.Store(true)
	if j.inside.Load() == 0 && j.waiting.CompareAndSwap(true, false) {
		return
	}
	<-j.wake
}

// help takes part in job after job until none comes for a while. A job that comes as a helper ends may have counted on
// it: so it looks once more after it said that it is gone.
func (c *crew) help(b *Backend) {
	s, own := b.scratch.get(b), 1+int(c.begun.Add(1))%(b.workers-1)
	defer b.scratch.put(s)
	for {
		c.lookOut(s, own)
		c.helpers.Add(-1)
		if j := c.job.Load(); j == nil || !j.open() {
			return
		}
		if c.helpers.Add(1) > int64(b.workers-1) { // the job's caller has started another
			c.helpers.Add(-1)
			return
		}
	}
}

// lookOut takes part in job after job until none came for as long as patience.
func (c *crew) lookOut(s *scratch, own int) {
	for idle := time.Now(); time.Since(idle) < patience; {
		for range glances {
			j := c.job.Load()
			if j == nil || !j.open() {
				continue
			}
			j.inside.Add(1)
			if c.job.Load() == j { // else it is settled, and may be used again
				j.take(s, own)
			}
			if j.inside.Add(-1) == 0 && j.waiting.CompareAndSwap(true, false) {
				j.wake <- struct{}{}
			}
		}
		if c.job.Load() != nil { // somebody is at its last items, and comes with the next job soon after
			idle = time.Now()
		}
		runtime.Gosched()
	}
}

// open says that there are items left.
func (j *job) open() bool { return j.left.Load() > 0 }
