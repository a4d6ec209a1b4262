package worker_test

import (
	"context"
	"testing"
	"testing/synctest"

	"lector/engine"
	"lector/queue"
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
