package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// endedReceipt is the receipt of a job that must have ended early as the given state.
func (r *rig) endedReceipt(id string, want queue.State) (out worker.Receipt) {
	r.Helper()
	st := r.status(id)
	if st.State != want || st.Dead != nil {
		r.Fatalf("job %s is %s with %+v, want %s", id, st.State, st.Dead, want)
	}
	if n := r.queue.Pending(); n != 0 {
		r.Fatalf("%d jobs are still in the queue", n)
	}
	if len(st.Result) > 0 {
		if err := json.Unmarshal(st.Result, &out); err != nil {
			r.Fatal(err)
		}
	}
	events := r.queue.Events(id)
	if last := events[len(events)-1]; last.Type != queue.EventEnded || last.State != want {
		r.Errorf("the story of job %s ends with %+v", id, last)
	}
	return out
}

// verified checks that a handle restores: somebody goes on from it.
func (r *rig) verified(digest string, tokens int) {
	r.Helper()
	d, err := cache.ParseDigest(digest)
	if err != nil {
		r.Fatal(err)
	}
	h, err := r.Space.Handle(r.Context(), d)
	if err != nil || h.Tokens != tokens {
		r.Fatalf("handle is of %d tokens, not %d: %v", h.Tokens, tokens, err)
	}
	id := r.submit(r.resumeJob(digest, queue.ResumeOrder{Text: "and", MaxTokens: 3}))
	r.turn(r.Worker)
	var got worker.Result
	r.result(id, &got)
	if got.Usage.Restored != tokens {
		r.Errorf("resume restored %d tokens, not %d", got.Usage.Restored, tokens)
	}
}

// A document that is cancelled while it is read ends at the next boundary, with a handle for what was read.
func TestCancelKeepsLastBoundary(t *testing.T) {
	r := newRig(t)
	const grid = enginetest.ToyGrid
	doc := prose(5*grid + 3)
	id := r.submit(r.ingestJob(doc, worker.IngestOptions{}))
	d, err := r.queue.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chunks := 0
	r.toy.BeforePrefill = func(context.Context, int, []engine.Token) error {
		if chunks++; chunks == 2 {
			if _, err := r.queue.Cancel(t.Context(), id, queue.Cancellation{Reason: "enough"}); err != nil {
				t.Error(err)
			}
		}
		if chunks >= 2 {
			time.Sleep(20 * time.Millisecond) // for the nudge to arrive
		}
		return nil
	}
	if err := r.Handle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r.toy.BeforePrefill = nil
	got := r.endedReceipt(id, queue.Cancelled)
	if got.Partial < 2*grid || got.Partial >= len(doc) || got.Partial%grid != 0 || got.Handle == "" || got.Tokens.Computed != got.Partial {
		t.Fatalf("receipt of the part is %+v", got)
	}
	r.verified(got.HandleDigest, got.Partial)
	if events := r.queue.Events(id); events[len(events)-1].Reason != "enough" {
		t.Errorf("the story ends with %+v", events[len(events)-1])
	}
	// The same document read again goes on from there.
	again := r.submit(r.ingestJob(doc, worker.IngestOptions{Again: "1"}))
	r.turn(r.Worker)
	if whole := r.receipt(again); whole.Tokens.Restored != got.Partial || whole.Partial != 0 {
		t.Errorf("receipt of the whole is %+v", whole)
	}
}

// A deadline that passes while the document is read ends it the same way; one that has passed before takes nothing.
func TestDeadline(t *testing.T) {
	r := newRig(t)
	const grid = enginetest.ToyGrid
	now := time.Now()
	r.Worker.Clock = func() time.Time { return now }
	r.toy.BeforePrefill = func(context.Context, int, []engine.Token) error {
		now = now.Add(time.Minute)
		return nil
	}
	doc := prose(5*grid + 3)
	id := r.submit(r.ingestJob(doc, worker.IngestOptions{Deadline: now.Add(150 * time.Second)}))
	r.turn(r.Worker)
	r.toy.BeforePrefill = nil
	got := r.endedReceipt(id, queue.Expired)
	if got.Partial != 3*grid {
		t.Fatalf("receipt of the part is %+v", got)
	}
	r.verified(got.HandleDigest, 3*grid)
	late := r.submit(r.ingestJob(prose(3*grid), worker.IngestOptions{Deadline: now.Add(time.Hour)}))
	now = now.Add(2 * time.Hour) // of the worker: the queue has not noticed
	r.turn(r.Worker)
	if got := r.endedReceipt(late, queue.Expired); got.Handle != "" {
		t.Errorf("a job that was taken too late has the receipt %+v", got)
	}
}

// A worker that died after somebody cancelled its job: the next one keeps what is stored, and computes nothing.
func TestCancelledAndRedelivered(t *testing.T) {
	r := newRig(t)
	const grid = enginetest.ToyGrid
	id := r.submit(r.ingestJob(prose(4*grid), worker.IngestOptions{}))
	d, err := r.queue.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.queue.Fail(queuetest.Rule{Op: "Acquire", Nth: 3, Err: queue.ErrClosed}) // after the second chunk
	if err := r.Handle(t.Context(), d); !errors.Is(err, queue.ErrClosed) {
		t.Fatalf("the worker ended with %v", err)
	}
	if st, err := r.queue.Cancel(t.Context(), id, queue.Cancellation{}); err != nil || st.State != queue.Running {
		t.Fatalf("the job of a dead worker is %s: %v", st.State, err)
	}
	before := r.toy.Prefills()
	r.queue.Expire(id)
	r.turn(r.another(r.toy))
	got := r.endedReceipt(id, queue.Cancelled)
	if after := r.toy.Prefills(); after != before {
		t.Errorf("%d chunks were computed for a cancelled job", after-before)
	}
	if got.Partial != 2*grid {
		t.Fatalf("receipt of the part is %+v", got)
	}
	r.verified(got.HandleDigest, 2*grid)
}

// An order may ask for handles on the way: each is there as soon as its boundary is stored.
func TestHandlesOnTheWay(t *testing.T) {
	r := newRig(t)
	const grid = enginetest.ToyGrid
	doc := prose(6*grid + 1)
	r.Worker.Config.KeepSpread = 1
	id := r.submit(r.ingestJob(doc, worker.IngestOptions{HandleAt: []int{1, grid, grid + 1, 4 * grid, 90 * grid}}))
	r.turn(r.Worker)
	got := r.receipt(id)
	var at []int
	for _, e := range got.Early {
		at = append(at, e.Tokens)
		r.verified(e.HandleDigest, e.Tokens)
	}
	if len(at) != 3 || at[0] != grid || at[1] != 2*grid || at[2] != 4*grid {
		t.Fatalf("handles on the way are at %v", at)
	}
	seen := 0
	for _, e := range r.queue.Events(id) {
		switch e.Type {
		case queue.EventHandle:
			if e.Tokens != at[seen] || e.Result == nil || e.Reason != "" {
				t.Errorf("event %d of a handle is %+v", seen, e)
			}
			seen++
		case queue.EventProgress:
			if seen < len(at) && e.Tokens > at[seen]+2*grid {
				t.Errorf("at %d tokens the handle for %d is not told", e.Tokens, at[seen])
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d handles were told", seen)
	}
	// Another order of the same document: where no state was kept, it says so.
	other := r.submit(r.ingestJob(doc, worker.IngestOptions{HandleAt: []int{4 * grid, 5 * grid}}))
	r.turn(r.Worker)
	if e := r.receipt(other).Early; len(e) != 1 || e[0].Tokens != 4*grid {
		t.Errorf("handles of the second order are %+v", e)
	}
	for _, e := range r.queue.Events(other) {
		if e.Type == queue.EventHandle && e.Tokens == 5*grid && e.Reason == "" {
			t.Error("a handle that cannot be made has no reason")
		}
	}
}

// A dead letter names the host and the last good boundary; submitted again, the job goes on from there.
func TestReplayGoesOn(t *testing.T) {
	r := newRig(t)
	const grid = enginetest.ToyGrid
	job := r.ingestJob(prose(5*grid), worker.IngestOptions{})
	r.toy.BeforePrefill = enginetest.FailPrefill(4, engine.ErrNumeric)
	id := r.submit(job)
	r.turn(r.Worker)
	dead := r.dead(id, "numeric")
	if dead.Host != "test" || dead.LastGood != 3*grid {
		t.Fatalf("dead letter is %+v", dead)
	}
	var letter queue.Letter
	if err := r.queue.DeadLetters(t.Context(), func(l queue.Letter) bool { letter = l; return false }); err != nil {
		t.Fatal(err)
	}
	if letter.Job == nil || letter.Dead != dead || letter.Attempts != 1 {
		t.Fatalf("letter is %+v", letter)
	}
	r.toy.BeforePrefill = nil
	r.submit(*letter.Job)
	r.turn(r.Worker)
	if got := r.receipt(id); got.Tokens.Restored != 3*grid || got.Tokens.Computed != 2*grid {
		t.Errorf("the replayed job computed %+v", got.Tokens)
	}
}
