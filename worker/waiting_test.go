package worker_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// A job that waits for memory ends when it is cancelled, and when its deadline comes, though the memory stays taken.
func TestEndsWhileWaitingForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		r.toy.Memory, _ = r.toy.SequenceBytes(60)
		block := make(chan struct{})
		r.toy.BeforeDecode = func(context.Context, int, []engine.Token) error { <-block; return nil }
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: 3})
		order := queue.ResumeOrder{MaxTokens: 30}
		first := r.submit(r.resumeJob(from.HandleDigest, order))
		synctest.Wait()
		cancelled := r.submit(r.resumeJob(from.HandleDigest, order))
		late := r.resumeJob(from.HandleDigest, order)
		late.Deadline = time.Now().Add(time.Minute)
		r.submit(late)
		synctest.Wait()
		if _, err := r.queue.Cancel(t.Context(), cancelled, queue.Cancellation{Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := r.status(cancelled); s.State != queue.Cancelled {
			t.Errorf("the job that was cancelled while it waited for memory is %s", s.State)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if s := r.status(late.ID); s.State != queue.Expired {
			t.Errorf("the job whose deadline came while it waited for memory is %s", s.State)
		}
		if s := r.status(first); s.State != queue.Running {
			t.Errorf("the job that has the memory is %s", s.State)
		}
		close(block)
		r.await(first)
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A step that the engine refuses because another job has the memory is made later, and no attempt is counted: the job
// outlasts any number of refusals.
func TestFullHostCountsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Config.Attempts = 2
		from := r.ingest(prose(20))
		refused, steps := 0, 0
		r.toy.Stops = []engine.Token{} // texts go on to their limit
		r.toy.BeforeDecode = func(context.Context, int, []engine.Token) error { time.Sleep(time.Second); steps++; return nil }
		r.toy.BeforePrefill = func(context.Context, int, []engine.Token) error {
			if steps < 500 {
				refused++
				return engine.ErrMemory
			}
			return nil
		}
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: 1, queue.Ingest: 1})
		text := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 600, Stop: []string{"\x00"}})) // has the memory, for minutes
		synctest.Wait()
		document := r.submit(r.ingestJob(prose(43), worker.IngestOptions{}))
		waited := 0
		for range 300 {
			time.Sleep(time.Second)
			s := r.status(document)
			if s.State.Final() || s.Attempts > 1 {
				t.Fatalf("after %d refusals the job is %s with %d attempts", refused, s.State, s.Attempts)
			}
			if s.State == queue.Queued && s.Waits != "" && s.Attempts == 0 {
				waited++
			}
		}
		if waited < 100 {
			t.Errorf("the job says in %d of 300 seconds that it waits", waited)
		}
		r.await(document)
		r.await(text)
		synctest.Wait()
		if got := r.receipt(document); got.Attempt != 1 || refused < 3 {
			t.Errorf("attempt %d after %d refusals", got.Attempt, refused)
		}
		if story := r.types(document); slices.Contains(story, queue.EventFailed) || slices.Contains(story, queue.EventRetry) {
			t.Errorf("the story is %v", story)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// Of a tenant no more jobs are worked on at once than its quota allows, by all workers together; the others wait, count no
// attempt, and get their turn.
func TestTenantsJobsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if err := r.queue.SetQuota(t.Context(), queue.DefaultTenant, queue.Quota{Running: 2}); err != nil {
			t.Fatal(err)
		}
		var now, most atomic.Int64
		busy := func(context.Context, int, []engine.Token) error {
			at := now.Add(1)
			for before := most.Load(); before < at && !most.CompareAndSwap(before, at); before = most.Load() {
			}
			time.Sleep(20 * time.Second)
			now.Add(-1)
			return nil
		}
		var ids []string
		for i := range 8 {
			ids = append(ids, r.submit(r.ingestJob(prose(3 + i)[i:], worker.IngestOptions{})))
		}
		var stops []context.CancelFunc
		var ends []<-chan error
		for range 3 { // of one slot each: a worker's engine computes for one job at a time
			w := r.another(&enginetest.Toy{BeforePrefill: busy})
			w.Config.Attempts = 1
			stop, ended := r.serve(w, worker.Slots{queue.Ingest: 1})
			stops, ends = append(stops, stop), append(ends, ended)
		}
		for _, id := range ids {
			r.await(id)
		}
		synctest.Wait()
		for _, id := range ids {
			if got := r.receipt(id); got.Attempt != 1 {
				t.Errorf("job %s took attempt %d", id, got.Attempt)
			}
		}
		if n := most.Load(); n != 2 {
			t.Errorf("%d jobs were worked on at once", n)
		}
		for i := range stops {
			stops[i]()
			if err := <-ends[i]; err != nil {
				t.Error(err)
			}
		}
	})
}

// A job of another tenant waits for a worker that serves that one: here its document is not to be found.
func TestAnotherTenantsJobWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		theirs := &cache.Space{Store: r.store, Tenant: "acme"}
		d, err := worker.StoreDocument(t.Context(), theirs, prose(20))
		if err != nil {
			t.Fatal(err)
		}
		id := r.submit(worker.NewIngest(r.identity(), d, worker.IngestOptions{Tokens: 20, Tenant: "acme", Submitted: time.Now()}))
		r.turn(r.Worker)
		if s := r.status(id); s.State != queue.Queued || s.Attempts != 0 || !strings.Contains(s.Waits, "--tenant acme") {
			t.Errorf("the job is %s after %d attempts, and waits for %q", s.State, s.Attempts, s.Waits)
		}
		w := r.another(r.toy)
		w.Space = theirs
		r.turn(w)
		if got := r.receipt(id); got.Attempt != 1 {
			t.Errorf("receipt is %+v", got)
		}
	})
}
