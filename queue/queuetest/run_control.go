package queuetest

import (
	"slices"
	"time"

	"lector/queue"
)

// cancelWaiting ends jobs that nobody works on: a new one, one that waits for another attempt, and those that have ended.
func cancelWaiting(f *fixture) {
	f.submit(ingestJob("new"))
	why := queue.Cancellation{At: time.Unix(1_700_000_000, 0).UTC(), Reason: "a mistake", By: "ops"}
	s, err := f.Queue.Cancel(f.ctx, "new", why)
	f.ok(err)
	if s.State != queue.Cancelled || s.Cancel == nil || *s.Cancel != why {
		f.Fatalf("a cancelled job is %+v", s)
	}
	f.none()
	f.ended("new", queue.Cancelled, "a mistake")
	s, err = f.Queue.Cancel(f.ctx, "new", queue.Cancellation{Reason: "again"})
	f.ok(err)
	if s.State != queue.Cancelled || s.Cancel.Reason != "a mistake" {
		f.Fatalf("cancelled again it is %+v", s)
	}
	if s := f.submit(ingestJob("new")); s.State != queue.Cancelled {
		f.Fatalf("submit of a cancelled job says %s", s.State)
	}

	f.submit(ingestJob("again"))
	f.ok(f.next("again", 1).Retry(f.ctx, f.AckWait))
	if s, err = f.Queue.Cancel(f.ctx, "again", why); err != nil || s.State != queue.Cancelled {
		f.Fatalf("a job that waited for another attempt is %+v: %v", s, err)
	}
	f.Pass(f.AckWait)
	f.none()

	f.submit(ingestJob("done"))
	f.finish(f.next("done", 1))
	if s, err = f.Queue.Cancel(f.ctx, "done", why); err != nil || s.State != queue.Done || s.Cancel != nil {
		f.Fatalf("a finished job is %+v: %v", s, err)
	}
	_, err = f.Queue.Cancel(f.ctx, "nobody", why)
	f.is(err, queue.ErrUnknown)
}

// ended checks that the last event of a job is its end.
func (f *fixture) ended(job string, want queue.State, reason string) {
	f.Helper()
	f.ok(f.Queue.Follow(f.ctx, job, func(e queue.Event) bool {
		if e.Type == queue.EventEnded && (e.State != want || e.Reason != reason) {
			f.Errorf("job %s ended as %s for %q, not %s for %q", job, e.State, e.Reason, want, reason)
		}
		return !e.Type.Final()
	}))
}

// cancelRunning asks a worker to stop: its delivery stands, it hears of it, and has the last word.
func cancelRunning(f *fixture) {
	why := queue.Cancellation{Reason: "enough"}
	f.submit(ingestJob("a"))
	d := f.next("a", 1)
	f.ok(d.Extend(f.ctx))
	s, err := f.Queue.Cancel(f.ctx, "a", why)
	f.ok(err)
	if s.State != queue.Running || s.Cancel == nil || s.Cancel.Reason != "enough" {
		f.Fatalf("a job to be cancelled is %+v", s)
	}
	select {
	case <-d.Nudged():
	case <-f.ctx.Done():
		f.Fatal("nobody nudged the worker")
	}
	f.is(d.Extend(f.ctx), queue.ErrCancelled)
	f.Pass(f.AckWait * 5 / 8)
	f.is(d.Extend(f.ctx), queue.ErrCancelled) // it still extends
	f.Pass(f.AckWait * 5 / 8)
	f.ok(f.Queue.SetStatus(f.ctx, queue.Status{Job: d.Job(), State: queue.Cancelled, Attempts: 1, Result: []byte(`{"part":1}`)}))
	f.ok(d.Extend(f.ctx))
	f.ok(d.Done(f.ctx))
	if s := f.state("a", queue.Cancelled, 1); string(s.Result) != `{"part":1}` || s.Cancel.Reason != "enough" {
		f.Fatalf("the cancelled job is %+v", s)
	}

	f.submit(ingestJob("b")) // a worker that gives it back
	d = f.next("b", 1)
	_, err = f.Queue.Cancel(f.ctx, "b", why)
	f.ok(err)
	f.ok(d.Retry(f.ctx, 0))
	f.state("b", queue.Cancelled, 1)
	f.ended("b", queue.Cancelled, "enough")

	f.submit(ingestJob("c")) // a worker that was faster
	d = f.next("c", 1)
	_, err = f.Queue.Cancel(f.ctx, "c", why)
	f.ok(err)
	f.finish(d)
	f.state("c", queue.Done, 1)

	f.submit(ingestJob("d")) // a worker that died
	f.next("d", 1)
	_, err = f.Queue.Cancel(f.ctx, "d", why)
	f.ok(err)
	f.Pass(f.AckWait + f.AckWait/4)
	f.is(f.next("d", 2).Extend(f.ctx), queue.ErrCancelled)
}

// expires has a job whose deadline has passed, and one whose has not.
func expires(f *fixture) {
	late, early := ingestJob("late"), ingestJob("early")
	late.Deadline, early.Deadline = time.Unix(1, 0).UTC(), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	f.submit(late)
	f.submit(early)
	d := f.next("early", 1)
	if !d.Job().Deadline.Equal(early.Deadline) {
		f.Fatalf("the deadline that came is %v", d.Job().Deadline)
	}
	f.finish(d)
	f.none()
	f.state("late", queue.Expired, 0)
	f.ended("late", queue.Expired, "")
	other := ingestJob("looked-at")
	other.Deadline = late.Deadline
	f.submit(other)
	f.state("looked-at", queue.Expired, 0)
	f.none()
	if s := f.submit(other); s.State != queue.Expired {
		f.Fatalf("submit of an expired job says %s", s.State)
	}
	if s, err := f.Queue.Cancel(f.ctx, "looked-at", queue.Cancellation{}); err != nil || s.State != queue.Expired {
		f.Fatalf("an expired job that is cancelled is %+v: %v", s, err)
	}
}

func list(f *fixture) {
	f.equalNames("of an empty queue", f.list(), nil)
	a, late := ingestJob("a"), ingestJob("late")
	a.Labels = map[string]string{"book": "Opticks"}
	late.Deadline = time.Unix(1, 0).UTC()
	f.submit(a)
	f.submit(late)
	f.submit(resumeJob("b"))
	f.finish(f.next("a", 1))
	f.ok(f.Queue.Pause(f.ctx, queue.Pause{})) // no job
	f.equalNames("all jobs", f.list(), []string{"a done Opticks", "b queued ", "late expired "})
	n := 0
	f.ok(f.Queue.List(f.ctx, func(queue.Status) bool { n++; return false }))
	if n != 1 {
		f.Fatalf("list went on %d times after it was told to stop", n-1)
	}
}

func (f *fixture) list() []string {
	f.Helper()
	var out []string
	f.ok(f.Queue.List(f.ctx, func(s queue.Status) bool {
		out = append(out, s.Job.ID+" "+string(s.State)+" "+s.Job.Labels["book"])
		return true
	}))
	slices.Sort(out)
	return out
}

func (f *fixture) equalNames(what string, got, want []string) {
	f.Helper()
	if !slices.Equal(got, want) {
		f.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

// letters has one job that is dropped and one that is submitted again.
func letters(f *fixture) {
	f.equalNames("letters of an empty queue", f.letters(), nil)
	dead := queue.Dead{Class: "numeric", Reason: "not a number at 700", LastGood: 512, Host: "here"}
	for _, id := range []string{"a", "b"} {
		f.submit(ingestJob(id))
		f.ok(f.next(id, 1).Retry(f.ctx, 0))
		f.ok(f.next(id, 2).Reject(f.ctx, dead))
	}
	f.equalNames("letters", f.letters(), []string{"a", "b"})
	f.ok(f.Queue.DeadLetters(f.ctx, func(l queue.Letter) bool {
		if l.Job == nil || l.Job.ID != l.Name || l.Dead != dead || l.Attempts != 2 || l.At.IsZero() {
			f.Errorf("letter is %+v", l)
		}
		return false
	}))
	f.ok(f.Queue.DropLetter(f.ctx, "a"))
	f.is(f.Queue.DropLetter(f.ctx, "a"), queue.ErrUnknown)
	f.is(f.Queue.DropLetter(f.ctx, "no id, this"), queue.ErrUnknown)
	f.state("a", queue.Failed, 2)
	f.submit(ingestJob("b"))
	f.equalNames("letters after the second submit", f.letters(), nil)
	f.ok(f.next("b", 1).Reject(f.ctx, dead))
	f.equalNames("letters of the second run", f.letters(), []string{"b"})
}

func (f *fixture) letters() []string {
	f.Helper()
	var out []string
	f.ok(f.Queue.DeadLetters(f.ctx, func(l queue.Letter) bool { out = append(out, l.Name); return true }))
	slices.Sort(out)
	return out
}
