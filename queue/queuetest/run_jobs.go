package queuetest

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"lector/queue"
)

func submitAndAdopt(f *fixture) {
	j := ingestJob("a")
	s := f.submit(j)
	if s.State != queue.Queued || s.Attempts != 0 || s.Job.Ingest == nil || !reflect.DeepEqual(s.Job.Ingest, j.Ingest) {
		f.Fatalf("status of a new job is %+v", s)
	}
	if s.Updated.IsZero() {
		f.Fatal("status of a new job has no time")
	}
	later := j
	later.Submitted = j.Submitted.Add(time.Hour)
	for range 3 {
		if s := f.submit(later); !s.Job.Submitted.Equal(j.Submitted) {
			f.Fatalf("second submit stands as of %v, not of %v", s.Job.Submitted, j.Submitted)
		}
	}
	d := f.next("a", 1)
	if !d.Job().Submitted.Equal(j.Submitted) {
		f.Fatalf("delivered the job of %v", d.Job().Submitted)
	}
	f.submit(later) // while it runs
	f.finish(d)
	if s := f.submit(later); s.State != queue.Done || string(s.Result) != `{"n":1}` {
		f.Fatalf("submit of a finished job says %+v", s)
	}
	f.none()
}

func submitInvalid(f *fixture) {
	j := ingestJob("no id, this")
	if _, err := f.Queue.Submit(f.ctx, j); err == nil {
		f.Fatal("submit took a job with a bad id")
	}
	f.none()
}

func unknownJob(f *fixture) {
	_, err := f.Queue.Status(f.ctx, "nobody")
	f.is(err, queue.ErrUnknown)
	_, err = f.Queue.Status(f.ctx, "no id, this")
	f.is(err, queue.ErrUnknown)
	f.is(f.Queue.SetStatus(f.ctx, queue.Status{Job: queue.Job{ID: "nobody"}, State: queue.Done}), queue.ErrUnknown)
	_, err = f.Queue.Handle(f.ctx, "nobody")
	f.is(err, queue.ErrUnknown)
}

func kinds(f *fixture) {
	f.submit(ingestJob("in"))
	f.submit(resumeJob("out"))
	d, err := f.Queue.Next(f.ctx, queue.Resume)
	f.ok(err)
	if d.Job().ID != "out" || d.Job().Resume == nil || d.Job().Resume.Text != "go on" {
		f.Fatalf("asked for a resume, got %+v", d.Job())
	}
	f.finish(d)
	f.finish(f.next("in", 1))
	urgent, idle := ingestJob("urgent"), ingestJob("idle")
	urgent.Priority, idle.Priority = "high", "low"
	f.submit(idle)
	f.submit(ingestJob("usual"))
	f.submit(urgent)
	for _, id := range []string{"urgent", "usual", "idle"} {
		f.finish(f.next(id, 1))
	}
}

// noStarvation has many jobs of each priority: the urgent ones come more often, and every priority gets its turns.
func noStarvation(f *fixture) {
	const each, taken = 20, 22
	for i := range each {
		for _, p := range []string{"low", "normal", "high"} {
			j := ingestJob(fmt.Sprintf("%s-%d", p, i))
			j.Priority = p
			f.submit(j)
		}
	}
	seen := map[string]int{}
	for range taken {
		d, err := f.Queue.Next(f.ctx)
		f.ok(err)
		seen[d.Job().Priority]++
		f.finish(d)
	}
	if seen["high"] <= seen["normal"] || seen["normal"] <= seen["low"] || seen["low"] == 0 {
		f.Fatalf("of %d jobs that were handed out, %v", taken, seen)
	}
}

// oneDelivery has takers that share the jobs.
func oneDelivery(f *fixture) {
	const jobs, takers = 15, 3
	for i := range jobs {
		f.submit(ingestJob(fmt.Sprintf("j%d", i)))
	}
	var mu sync.Mutex
	seen := map[string]int{}
	left := make(chan struct{}, jobs)
	for range jobs {
		left <- struct{}{}
	}
	close(left)
	take := func() (more bool) {
		if _, more = <-left; !more {
			return false
		}
		d, err := f.Queue.Next(f.ctx)
		if err == nil {
			mu.Lock()
			seen[d.Job().ID]++
			mu.Unlock()
			err = d.Done(f.ctx)
		}
		if err != nil {
			f.Error(err)
		}
		return err == nil
	}
	var wg sync.WaitGroup
	for range takers {
		wg.Go(func() {
			for take() {
			}
		})
	}
	wg.Wait()
	if len(seen) != jobs {
		f.Errorf("%d jobs were delivered, not %d", len(seen), jobs)
	}
	for id, n := range seen {
		if n != 1 {
			f.Errorf("job %s was delivered %d times", id, n)
		}
	}
}

func nextWaits(f *fixture) {
	got := make(chan error, 1)
	go func() {
		d, err := f.Queue.Next(f.ctx, queue.Ingest)
		if err == nil {
			err = d.Done(f.ctx)
		}
		got <- err
	}()
	f.submit(resumeJob("not-this"))
	f.submit(ingestJob("this"))
	select {
	case <-f.ctx.Done():
		f.Fatal("a waiting Next got no job")
	case err := <-got:
		f.ok(err)
	}
	f.next("not-this", 1)
}

func extend(f *fixture) {
	f.submit(ingestJob("long"))
	d := f.next("long", 1)
	for range 4 {
		f.Pass(f.AckWait / 2)
		f.ok(d.Extend(f.ctx))
	}
	f.none()
	f.state("long", queue.Running, 1)
	f.finish(d)
	f.Pass(f.AckWait + f.AckWait/4)
	f.none()
}

func lost(f *fixture) {
	f.submit(ingestJob("slow"))
	old := f.next("slow", 1)
	f.Pass(f.AckWait + f.AckWait/4)
	now := f.next("slow", 2)
	f.is(old.Extend(f.ctx), queue.ErrLost)
	f.is(old.Done(f.ctx), queue.ErrLost)
	f.is(old.Retry(f.ctx, 0), queue.ErrLost)
	f.is(old.Release(f.ctx), queue.ErrLost)
	f.is(old.Reject(f.ctx, queue.Dead{Class: "bad-input"}), queue.ErrLost)
	f.is(f.Queue.SetStatus(f.ctx, queue.Status{Job: old.Job(), State: queue.Failed, Attempts: old.Attempt()}), queue.ErrLost)
	f.state("slow", queue.Running, 2)

	standing, err := f.Queue.PublishHandle(f.ctx, "slow", []byte("by the new one"))
	f.ok(err)
	late, err := f.Queue.PublishHandle(f.ctx, "slow", []byte("by the old one"))
	f.ok(err)
	if string(standing) != "by the new one" || string(late) != string(standing) {
		f.Fatalf("handles that stand: %q, then %q", standing, late)
	}
	f.ok(now.Extend(f.ctx))
	f.finish(now)
	f.state("slow", queue.Done, 2)
	f.none()
}

func settledOnce(f *fixture) {
	f.submit(ingestJob("a"))
	d := f.next("a", 1)
	f.finish(d)
	f.is(d.Done(f.ctx), queue.ErrLost)
	f.is(d.Extend(f.ctx), queue.ErrLost)
	f.is(d.Retry(f.ctx, 0), queue.ErrLost)
	f.is(d.Reject(f.ctx, queue.Dead{}), queue.ErrLost)
	f.state("a", queue.Done, 1)
}

func retry(f *fixture) {
	f.submit(ingestJob("again"))
	f.ok(f.next("again", 1).Retry(f.ctx, f.AckWait))
	f.state("again", queue.Queued, 1)
	f.none()
	f.Pass(f.AckWait)
	d := f.next("again", 2)
	f.state("again", queue.Running, 2)
	f.ok(d.Retry(f.ctx, 0))
	f.finish(f.next("again", 3))
	f.state("again", queue.Done, 3)
}

func release(f *fixture) {
	f.submit(ingestJob("drain"))
	for range 3 {
		f.ok(f.next("drain", 1).Release(f.ctx))
		f.state("drain", queue.Queued, 0)
	}
	f.ok(f.next("drain", 1).Retry(f.ctx, 0))
	f.ok(f.next("drain", 2).Release(f.ctx))
	f.finish(f.next("drain", 2))
}

func reject(f *fixture) {
	f.submit(ingestJob("bad"))
	dead := queue.Dead{Class: "bad-input", Reason: "token 7 is not in the vocabulary", LastGood: 512}
	f.ok(f.next("bad", 1).Reject(f.ctx, dead))
	s := f.state("bad", queue.Failed, 1)
	if s.Dead == nil || *s.Dead != dead {
		f.Fatalf("reason of the failed job is %+v", s.Dead)
	}
	f.Pass(f.AckWait + f.AckWait/4)
	f.none()
}

func queuedAfresh(f *fixture) {
	j := ingestJob("phoenix")
	f.submit(j)
	f.publish("phoenix", 1, 1, 2)
	f.ok(f.next("phoenix", 1).Retry(f.ctx, 0))
	old := f.next("phoenix", 2)
	f.ok(f.Queue.SetStatus(f.ctx, queue.Status{Job: j, State: queue.Failed, Attempts: 2, Dead: &queue.Dead{Class: "attempts"}}))
	j.Submitted = j.Submitted.Add(time.Hour)
	for range 2 {
		s := f.submit(j)
		if s.State != queue.Queued || s.Attempts != 0 || s.Dead != nil || !s.Job.Submitted.Equal(j.Submitted) {
			f.Fatalf("a failed job submitted again is %+v", s)
		}
	}
	f.is(old.Done(f.ctx), queue.ErrLost) // it belongs to the run that failed
	d := f.next("phoenix", 1)
	if !d.Job().Submitted.Equal(j.Submitted) {
		f.Fatalf("delivered the job of %v", d.Job().Submitted)
	}
	f.publish("phoenix", 1, 3)
	f.equal("events of the new run", f.follow("phoenix", 1), []int{3})
	f.ok(d.Reject(f.ctx, queue.Dead{Class: "bad-input"}))
	f.submit(j)
	f.finish(f.next("phoenix", 1))
	f.Pass(f.AckWait + f.AckWait/4)
	f.none() // the message of the first run is gone, too
}

func status(f *fixture) {
	j := ingestJob("s")
	f.submit(j)
	d := f.next("s", 1)
	set := func(s queue.State, result string) error {
		return f.Queue.SetStatus(f.ctx, queue.Status{Job: d.Job(), State: s, Attempts: 1, Result: []byte(result)})
	}
	f.ok(set(queue.Running, `1`))
	f.ok(set(queue.Done, `2`))
	f.ok(set(queue.Done, `3`)) // repeated after a lost answer: the first word stands
	for _, s := range []queue.State{queue.Running, queue.Queued, queue.Failed, queue.Cancelled} {
		f.is(set(s, `4`), queue.ErrLost)
	}
	if s := f.state("s", queue.Done, 1); string(s.Result) != `2` || s.Job.Ingest == nil {
		f.Fatalf("status that stands is %+v", s)
	}
	f.ok(d.Done(f.ctx))

	f.submit(ingestJob("c"))
	f.ok(f.Queue.SetStatus(f.ctx, queue.Status{Job: queue.Job{ID: "c"}, State: queue.Cancelled}))
	if s := f.submit(ingestJob("c")); s.State != queue.Cancelled {
		f.Fatalf("submit of a cancelled job says %s", s.State)
	}
}

// finishedAgain is a worker that died between its last word and the acknowledgement.
func finishedAgain(f *fixture) {
	f.submit(ingestJob("f"))
	d := f.next("f", 1)
	f.ok(f.Queue.SetStatus(f.ctx, queue.Status{Job: d.Job(), State: queue.Done, Attempts: 1}))
	f.Pass(f.AckWait + f.AckWait/4)
	again := f.next("f", 1)
	f.state("f", queue.Done, 1)
	f.ok(again.Done(f.ctx))
	f.state("f", queue.Done, 1)
	f.Pass(f.AckWait + f.AckWait/4)
	f.none()
}
