package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"lector/engine"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// warm is sampling that gives each branch a text of its own.
func warm() queue.Sampling { return queue.Sampling{Temperature: 3, TopK: 50, TopP: 0.95} }

// Branches share what they follow: the prompt is read once, the first is the text of an order for one, the others
// depend on the seed and their number alone.
func TestBranches(t *testing.T) {
	var apart []worker.Branch
	for _, noRewind := range []bool{false, true} {
		for drafts := 0; drafts <= engine.MaxDrafts; drafts++ {
			r := newRig(t)
			r.toy.NoRewind = noRewind
			from := r.ingest(prose(43))
			order := queue.ResumeOrder{Text: "go on", MaxTokens: 20, Sampling: warm(), Drafts: drafts}
			one := r.resume(from.HandleDigest, order)
			before := r.toy.Prefilled()
			order.Branches = 4
			got := r.resume(from.HandleDigest, order)
			if len(got.Branches) != 4 || got.Text != one.Text || got.Branches[0].Text != one.Text || len(one.Branches) != 0 {
				t.Fatalf("with %d drafts: %d branches, the first is %q, alone it was %q", drafts, len(got.Branches), got.Text, one.Text)
			}
			texts := map[string]bool{}
			sum := worker.BranchUsage{}
			for i, b := range got.Branches {
				texts[b.Text] = true
				if apart != nil && (b.Text != apart[i].Text || !equalIDs(b.IDs, apart[i].IDs)) {
					t.Errorf("with %d drafts branch %d is %q, was %q", drafts, i, b.Text, apart[i].Text)
				}
				sum.Generated += b.Usage.Generated
				sum.Drafted += b.Usage.Drafted
				sum.Accepted += b.Usage.Accepted
			}
			if len(texts) != 4 {
				t.Errorf("the branches are %v", texts)
			}
			if u := got.Usage; u.Generated != sum.Generated || u.Drafted != sum.Drafted || u.Accepted != sum.Accepted || u.Restored != 43 || u.Prefilled != len(encode(t, "go on")) {
				t.Errorf("usage is %+v, of the branches together %+v", u, sum)
			}
			if n := r.toy.Prefilled() - before; noRewind != (n > len(encode(t, "go on"))) {
				t.Errorf("%d tokens were prefilled for a prompt of %d", n, len(encode(t, "go on")))
			}
			if r.toy.Open() != 0 {
				t.Errorf("%d sequences are open", r.toy.Open())
			}
			apart = got.Branches
		}
	}
}

// The first branch ends at once, the second does not: each has its own end.
func TestBranchesEndApart(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	order := queue.ResumeOrder{MaxTokens: 40, Sampling: warm(), Branches: 3}
	whole := r.resume(from.HandleDigest, order)
	order.Stop = []string{whole.Branches[1].Text[5:8]}
	got := r.resume(from.HandleDigest, order)
	if b := got.Branches[1]; b.FinishReason != worker.FinishStop || b.Text != whole.Branches[1].Text[:5] {
		t.Errorf("branch 1 is %q (%s)", b.Text, b.FinishReason)
	}
	if b := got.Branches[2]; b.Text != whole.Branches[2].Text {
		t.Errorf("branch 2 is %q, without the stop string %q", b.Text, whole.Branches[2].Text)
	}
}

// A second attempt tells all branches again, the same.
func TestBranchesAreRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(43))
		order := queue.ResumeOrder{Text: "x", MaxTokens: 12, Sampling: warm(), Branches: 3, Drafts: 1}
		want := r.resume(from.HandleDigest, order)
		calls := 0
		r.toy.BeforeDecode = func(_ context.Context, _ int, _ []engine.Token) error {
			if calls++; calls == 20 {
				return engine.ErrDevice
			}
			return nil
		}
		id := r.submit(r.resumeJob(from.HandleDigest, order))
		r.turn(r.Worker)
		r.turn(r.Worker)
		var got worker.Result
		r.result(id, &got)
		r.story(id, got)
		if calls <= 20 || got.Attempt != 2 {
			t.Fatalf("attempt %d after %d steps", got.Attempt, calls)
		}
		for i := range want.Branches {
			if got.Branches[i].Text != want.Branches[i].Text {
				t.Errorf("branch %d says %q, want %q", i, got.Branches[i].Text, want.Branches[i].Text)
			}
		}
	})
}

// A result lies in the store before its job is done; a second attempt takes it from there and computes nothing. One that
// is too large for a message travels without its texts.
func TestResultsAreStored(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(20))
	r.Config.ResultMessage = 6000
	for _, c := range []struct {
		order queue.ResumeOrder
		large bool
	}{
		{order: queue.ResumeOrder{MaxTokens: 9, Sampling: warm(), Branches: 2}},
		{order: queue.ResumeOrder{MaxTokens: 60, Sampling: warm(), Branches: 20}, large: true},
	} {
		r.toy.Stops = []engine.Token{} // to the end
		id := r.submit(r.resumeJob(from.HandleDigest, c.order))
		r.queue.Fail(queuetest.Rule{Op: "SetStatus", Nth: 1, Err: queue.ErrClosed}) // as if it died when the result was stored
		d, err := r.queue.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Handle(t.Context(), d); !errors.Is(err, queue.ErrClosed) {
			t.Fatalf("ended with %v", err)
		}
		if s := r.status(id); s.State == queue.Done {
			t.Fatal("the job is done")
		}
		decoded := r.toy.Decoded()
		r.queue = r.queue.Restart()
		next := r.another(r.toy)
		next.Config = r.Config
		r.turn(next)
		r.Worker = next
		var told worker.Result
		r.result(id, &told)
		body, err := next.Space.Result(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var whole worker.Result
		if err := json.Unmarshal(body, &whole); err != nil {
			t.Fatal(err)
		}
		if r.toy.Decoded() != decoded || told.Stored != c.large || (told.Text == "") != c.large || whole.Text == "" || len(whole.Branches) != c.order.Branches {
			t.Errorf("large %v: %d tokens computed again, told %d bytes of text, stored %d", c.large, r.toy.Decoded()-decoded, len(told.Text), len(whole.Text))
		}
		if s := r.status(id); len(s.Result) > r.Config.ResultMessage {
			t.Errorf("a result of %d bytes is told", len(s.Result))
		}
		r.story(id, whole)
	}
}
