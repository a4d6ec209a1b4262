package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"lector/engine"
	"lector/queue"
	"lector/worker"
)

// recentJobs is how many ended attempts a worker remembers.
const recentJobs = 8

// roll knows what the workers of this process do, for whoever asks. It hears deliveries and events as they pass on
// their way to the queue, and endings as a worker.Meter.
type roll struct {
	worker.NoMeter
	mu   sync.Mutex
	says queue.WorkerStatus
}

// newRoll begins the roll of a session.
func (s *session) newRoll(host string) *roll {
	return &roll{says: queue.WorkerStatus{
		Host: host, Process: os.Getpid(), Program: version(), Model: s.identity.Model.String(), Name: s.model.engine.Info().Name,
		Class: s.identity.Class, Started: time.Now().UTC(),
	}}
}

// answer has the roll read to whoever asks, until the session ends.
func (s *session) answer(r *roll) error {
	roster, ok := s.queue.(queue.Roster)
	if !ok {
		return nil
	}
	gauge, _ := s.queue.(queue.Gauge)
	if s.unlist != nil {
		s.unlist() // of an earlier worker of this session
	}
	stop, err := roster.Answer(func() queue.WorkerStatus { return r.report(gauge) })
	s.unlist = stop
	return err
}

// report is the roll now, with the depth of the queue where it can be had.
func (r *roll) report(gauge queue.Gauge) queue.WorkerStatus {
	r.mu.Lock()
	says := r.says
	says.Jobs, says.Recent = slices.Clone(says.Jobs), slices.Clone(says.Recent)
	r.mu.Unlock()
	if gauge != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		says.Depth, _ = gauge.Depth(ctx) // without an answer there are no figures
	}
	return says
}

// took hears of a delivery.
func (r *roll) took(d queue.Delivery) {
	j := d.Job()
	job := queue.WorkerJob{ID: j.ID, Kind: j.Kind, Attempt: d.Attempt(), Since: time.Now().UTC()}
	switch {
	case j.Ingest != nil:
		job.Name, job.Total = j.Ingest.Name, j.Ingest.Tokens
	case j.Resume != nil:
		job.Total = j.Resume.MaxTokens
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says.Jobs = append(r.says.Jobs, job)
}

// heard hears of an event on its way.
func (r *roll) heard(e queue.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(e.Job)
	if i < 0 {
		return
	}
	switch j := &r.says.Jobs[i]; {
	case e.Type == queue.EventTokens:
		j.Tokens = max(j.Tokens, e.First+len(e.IDs))
	case j.Kind == queue.Ingest && (e.Type == queue.EventProgress || e.Type == queue.EventRestored):
		j.Tokens, j.Total = e.Tokens, e.Total
	}
}

func (r *roll) find(job string) int {
	return slices.IndexFunc(r.says.Jobs, func(j queue.WorkerJob) bool { return j.ID == job })
}

// Computed counts tokens.
func (r *roll) Computed(_ queue.Kind, s engine.ChunkStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says.Tokens += s.Tokens
}

// Ended hears how an attempt came out.
func (r *roll) Ended(e worker.Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says.Ended++
	if e.Final == queue.Failed {
		r.says.Failed++
	}
	i := r.find(e.Job)
	if i < 0 {
		return
	}
	job := r.says.Jobs[i]
	job.Class, job.Seconds = e.Fate.Class, e.Took.Seconds()
	r.says.Jobs = slices.Delete(r.says.Jobs, i, i+1)
	r.says.Recent = slices.Insert(r.says.Recent, 0, job)
	r.says.Recent = r.says.Recent[:min(len(r.says.Recent), recentJobs)]
}

// drain says that no more work is taken.
func (r *roll) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says.Draining = true
}

// listening is a queue whose deliveries and events the roll hears.
type listening struct {
	queue.Queue
	roll *roll
}

// Next tells the roll what it returns.
func (q listening) Next(ctx context.Context, kinds ...queue.Kind) (queue.Delivery, error) {
	d, err := q.Queue.Next(ctx, kinds...)
	if err == nil {
		q.roll.took(d)
	}
	return d, err
}

// Publish tells the roll what was told.
func (q listening) Publish(ctx context.Context, e queue.Event) error {
	err := q.Queue.Publish(ctx, e)
	if err == nil {
		q.roll.heard(e)
	}
	return err
}

// meters tells several.
type meters []worker.Meter

var _ worker.Meter = meters(nil)

func (m meters) Began(k queue.Kind) {
	for _, one := range m {
		one.Began(k)
	}
}

func (m meters) Ended(e worker.Ending) {
	for _, one := range m {
		one.Ended(e)
	}
}

func (m meters) Looked(l worker.Lookup) {
	for _, one := range m {
		one.Looked(l)
	}
}

func (m meters) Restored(r worker.Restoring) {
	for _, one := range m {
		one.Restored(r)
	}
}

func (m meters) Computed(k queue.Kind, s engine.ChunkStats) {
	for _, one := range m {
		one.Computed(k, s)
	}
}

func (m meters) Stored(s worker.Stored) {
	for _, one := range m {
		one.Stored(s)
	}
}

func (m meters) ClaimLost() {
	for _, one := range m {
		one.ClaimLost()
	}
}

// metersOf is the roll, and the figures where they are shown.
func (w *watched) metersOf(r *roll) worker.Meter {
	if w == nil {
		return r
	}
	return meters{r, w.metrics}
}
