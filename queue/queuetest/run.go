package queuetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"lector/queue"
)

// Subject is an open queue under test, and what a test cannot do through the contract.
type Subject struct {
	Queue queue.Queue
	// AckWait is how long a delivery stands without Extend.
	AckWait time.Duration
	// Pass lets time go by: it sleeps, or moves a clock.
	Pass func(time.Duration)
	// Restart ends the queue's owner as a kill would and returns the queue of its successor.
	Restart func() queue.Queue
}

// Model is the model of the jobs that Run submits; the queues that it is given hand out jobs of that model.
const Model = "model-1"

// patience bounds every wait of the suite; a correct queue comes nowhere near it.
const patience = 2 * time.Minute

// Run checks that the queues which open returns mean what package queue says. Each test opens its own, empty, and
// closes it; open registers whatever else is to be cleaned up.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	tests := []struct {
		name string
		run  func(*fixture)
	}{
		{"submit and adopt", submitAndAdopt},
		{"submit refuses what is not a job", submitInvalid},
		{"unknown job", unknownJob},
		{"kinds", kinds},
		{"one delivery at a time", oneDelivery},
		{"no priority starves", noStarvation},
		{"next waits", nextWaits},
		{"extend past the ack wait", extend},
		{"lost after redelivery", lost},
		{"settled once", settledOnce},
		{"retry waits", retry},
		{"release is not counted", release},
		{"reject", reject},
		{"failed job is queued afresh", queuedAfresh},
		{"status", status},
		{"finished job comes again", finishedAgain},
		{"events", events},
		{"follow live", followLive},
		{"handle", handle},
		{"lease", leases},
		{"lease expires", leaseExpires},
		{"pause", pause},
		{"postpone is not counted", postpone},
		{"quota of open jobs", quotaOpen},
		{"quota of open jobs, many at once", quotaOpenAtOnce},
		{"quota of tokens", quotaTokens},
		{"quota of jobs at once", quotaRunning},
		{"cancel a job that waits", cancelWaiting},
		{"cancel a job that runs", cancelRunning},
		{"deadline", expires},
		{"list", list},
		{"dead letters", letters},
		{"restart", restart},
		{"contexts", contexts},
		{"close", closing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			subject := open(t) // which may wait for other tests first
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			f := &fixture{T: t, ctx: ctx, Subject: subject}
			defer func() { f.ok(f.Queue.Close()) }()
			tt.run(f)
		})
	}
}

// fixture is one test's queue with the steps that tests share. A step that fails ends the test.
type fixture struct {
	*testing.T
	Subject
	ctx context.Context
}

// ingestJob is a job that every queue takes.
func ingestJob(id string) queue.Job {
	return queue.Job{
		Version: queue.JobVersion, ID: id, Kind: queue.Ingest, Model: Model, Priority: "normal",
		Submitted: time.Unix(1_700_000_000, 0).UTC(),
		Ingest:    &queue.IngestOrder{Document: "d-" + id, Tokens: 7, Name: "a document"},
	}
}

func resumeJob(id string) queue.Job {
	j := ingestJob(id)
	j.Kind, j.Ingest = queue.Resume, nil
	j.Resume = &queue.ResumeOrder{Handle: "h-" + id, Text: "go on", MaxTokens: 5}
	return j
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) is(err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("error is %v, not %v", err, want)
	}
}

func (f *fixture) submit(j queue.Job) queue.Status {
	f.Helper()
	s, err := f.Queue.Submit(f.ctx, j)
	f.ok(err)
	return s
}

// next takes a job that must be there.
func (f *fixture) next(id string, attempt int) queue.Delivery {
	f.Helper()
	d, err := f.Queue.Next(f.ctx, queue.Ingest, queue.Resume)
	f.ok(err)
	if d.Job().ID != id || d.Attempt() != attempt {
		f.Fatalf("delivered attempt %d of job %s, not attempt %d of %s", d.Attempt(), d.Job().ID, attempt, id)
	}
	return d
}

// none checks that no job is due now.
func (f *fixture) none() {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, f.AckWait/4)
	defer cancel()
	d, err := f.Queue.Next(ctx, queue.Ingest, queue.Resume)
	if err == nil {
		f.Fatalf("attempt %d of job %s was delivered, though none is due", d.Attempt(), d.Job().ID)
	}
	f.is(err, context.DeadlineExceeded)
}

func (f *fixture) state(id string, want queue.State, attempts int) queue.Status {
	f.Helper()
	s, err := f.Queue.Status(f.ctx, id)
	f.ok(err)
	if s.State != want || s.Attempts != attempts {
		f.Fatalf("job %s is %s after %d attempts, not %s after %d", id, s.State, s.Attempts, want, attempts)
	}
	return s
}

// finish is what a worker does at the end of a job.
func (f *fixture) finish(d queue.Delivery) {
	f.Helper()
	f.ok(f.Queue.SetStatus(f.ctx, queue.Status{Job: d.Job(), State: queue.Done, Attempts: d.Attempt(), Result: []byte(`{"n":1}`)}))
	f.ok(d.Done(f.ctx))
}

func (f *fixture) publish(job string, attempt int, first ...int) {
	f.Helper()
	for _, n := range first {
		e := queue.Event{Version: 1, Job: job, Attempt: attempt, Type: queue.EventTokens, First: n, IDs: []int32{int32(n)}, Text: "t"}
		f.ok(f.Queue.Publish(f.ctx, e))
	}
}

// follow returns the First of the next n events from the start.
func (f *fixture) follow(job string, n int) []int {
	f.Helper()
	var got []int
	if n == 0 {
		return got
	}
	f.ok(f.Queue.Follow(f.ctx, job, func(e queue.Event) bool {
		if e.Job != job || e.Type != queue.EventTokens || !slices.Equal(e.IDs, []int32{int32(e.First)}) {
			f.Errorf("event came back changed: %+v", e)
		}
		got = append(got, e.First)
		return len(got) < n
	}))
	return got
}

func (f *fixture) equal(what string, got, want []int) {
	f.Helper()
	if !slices.Equal(got, want) {
		f.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
