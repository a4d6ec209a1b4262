package worker_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// none orders a handle that holds token ids alone.
func none() worker.IngestOptions { return worker.IngestOptions{KeepState: queue.KeepNone} }

// alone makes a handle of a document's ids.
func (r *rig) alone(tokens []int32) worker.Receipt {
	r.Helper()
	id := r.submit(r.ingestJob(tokens, none()))
	r.turn(r.Worker)
	return r.receipt(id)
}

// An ingest that keeps no state computes nothing, and says what it left to do.
func TestIngestKeepsNoState(t *testing.T) {
	r := newRig(t)
	const n = 5*enginetest.ToyGrid + 3
	o := none()
	o.HandleAt = []int{enginetest.ToyGrid + 1, 90 * enginetest.ToyGrid}
	id := r.submit(r.ingestJob(prose(n), o))
	r.turn(r.Worker)
	got := r.receipt(id)
	if want := (worker.TokenCounts{Total: n, Unread: n}); r.toy.Prefills() != 0 || got.Tokens != want || got.StateBytes != 4*n || got.Partial != 0 {
		t.Errorf("%d tokens were computed: %+v", r.toy.Prefilled(), got)
	}
	if len(got.Early) != 1 || got.Early[0].Tokens != 2*enginetest.ToyGrid {
		t.Fatalf("handles on the way: %+v", got.Early)
	}
	for _, name := range r.store.Names() {
		if kind := kindOf(name); kind == "nodes" || kind == "keep" || kind == "rolling" {
			t.Errorf("%s is stored", name)
		}
	}
	for digest, tokens := range map[string]int{got.HandleDigest: n, got.Early[0].HandleDigest: 2 * enginetest.ToyGrid} {
		if a := r.resume(digest, queue.ResumeOrder{MaxTokens: 5}); !equalIDs(a.IDs, r.plainText(prose(tokens), 5)) || a.Usage.Reread != tokens {
			t.Errorf("the handle of %d tokens says %+v", tokens, a)
		}
	}
	if a := r.alone(prose(2 * enginetest.ToyGrid)); a.HandleDigest != got.Early[0].HandleDigest {
		t.Errorf("the handle on the way is %s, the beginning's own %s", got.Early[0].Handle, a.Handle)
	}
	if full := r.ingest(prose(n)); full.HandleDigest == got.HandleDigest || full.Tokens.Computed != n {
		t.Errorf("with its state: %+v", full)
	}
	// A second attempt of a job that got as far as its handle tells the same.
	again := newRig(t)
	id = again.submit(again.ingestJob(prose(n), none()))
	life := &mortal{at: "status done #1"}
	doomed := again.another(again.toy)
	doomed.Queue = mortalQueue{again.queue, life}
	again.turn(doomed)
	again.revive(id)
	if second := again.receipt(id); !life.dead || second.Tokens.Unread != n || second.Tokens.Restored != 0 {
		t.Errorf("the next attempt says %+v", second)
	}
}

// Law: a handle of token ids alone resumes to what the handle of the state does. Nothing is computed that anybody has
// stored, and nothing but the rest of the document and the prompt.
func TestResumeWithoutStateEqualsResume(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 5*enginetest.ToyGrid).Draw(rt, "tokens")
		stored := rapid.IntRange(0, n).Draw(rt, "stored by another")
		order := queue.ResumeOrder{
			Tokens: prose(90)[90-rapid.IntRange(0, 20).Draw(rt, "prompt"):], MaxTokens: rapid.IntRange(1, 20).Draw(rt, "more"),
			Drafts: rapid.IntRange(0, 3).Draw(rt, "drafts"), Sampling: queue.Sampling{Temperature: float64(rapid.IntRange(0, 2).Draw(rt, "heat"))},
			Branches: rapid.IntRange(0, 2).Draw(rt, "branches"), Keep: rapid.Bool().Draw(rt, "keep"),
		}
		if order.Keep {
			order.Branches = 0
		}
		apart := newRig(t)
		want := apart.resume(apart.ingest(prose(n)).HandleDigest, order)
		r := newRig(t)
		handle := r.alone(prose(n)).HandleDigest
		there := 0
		if stored > 0 {
			r.ingest(prose(stored))
			there = stored - stored%enginetest.ToyGrid
			if stored == n {
				there = n
			}
		}
		before := r.toy.Prefilled()
		got := r.resume(handle, order)
		if !slices.Equal(got.IDs, want.IDs) || got.Text != want.Text || len(got.Branches) != len(want.Branches) || got.HandleDigest != want.HandleDigest {
			rt.Fatalf("%q with the handle %q, of the state %q with %q", got.Text, got.Handle, want.Text, want.Handle)
		}
		for i, b := range got.Branches {
			if b.Text != want.Branches[i].Text {
				rt.Fatalf("branch %d says %q, want %q", i, b.Text, want.Branches[i].Text)
			}
		}
		u := got.Usage
		if u.Restored != there || u.Reread != n-there || u.Prefilled != len(order.Tokens) || u.Generated != want.Usage.Generated {
			rt.Fatalf("%d of %d tokens are stored, usage is %+v", there, n, u)
		}
		if did := r.toy.Prefilled() - before; did != u.Reread+u.Prefilled {
			rt.Fatalf("%d tokens were prefilled, usage is %+v", did, u)
		}
		if r.toy.Open() != 0 {
			rt.Fatalf("%d sequences are open", r.toy.Open())
		}
	})
}

// The extended text's ids alone make the handle that an ingest of them makes, whichever handle it went on from, and store
// no state; with its state, what was read again is stored for others.
func TestKeepWithoutState(t *testing.T) {
	r := newRig(t)
	const n = 2*enginetest.ToyGrid + 3
	full, alone := r.ingest(prose(n)), r.alone(prose(n))
	order := queue.ResumeOrder{Text: "go on", MaxTokens: 20, Drafts: 3, Keep: true, KeepState: queue.KeepNone, Stop: []string{"e", "a"}}
	blobs := strings.Count(strings.Join(r.store.Names(), "\n"), "/nodes/")
	a, b := r.resume(full.HandleDigest, order), r.resume(alone.HandleDigest, order)
	all := slices.Concat(prose(n), encode(t, "go on"), a.IDs)
	if want := r.alone(all); a.HandleDigest != want.HandleDigest || b.HandleDigest != want.HandleDigest || a.StateBytes != int64(4*len(all)) {
		t.Errorf("handles %s and %s, an ingest of the ids gives %s", a.Handle, b.Handle, want.Handle)
	}
	if now := strings.Count(strings.Join(r.store.Names(), "\n"), "/nodes/"); now != blobs {
		t.Errorf("%d nodes were stored", now-blobs)
	}
	second := r.resume(a.HandleDigest, queue.ResumeOrder{MaxTokens: 5})
	if want := r.plainText(all, 5); !equalIDs(second.IDs, want) {
		t.Errorf("the next turn says %v, want %v", second.IDs, want)
	}

	apart := newRig(t)
	order.KeepState, order.Stop = "", nil
	got := apart.resume(apart.alone(prose(n)).HandleDigest, order)
	before := apart.toy.Prefilled()
	all = slices.Concat(prose(n), encode(t, "go on"), got.IDs)
	if want := apart.ingest(all); want.HandleDigest != got.HandleDigest || apart.toy.Prefilled() != before {
		t.Errorf("handle %s, an ingest of the ids gives %s and computes %d tokens", got.Handle, want.Handle, apart.toy.Prefilled()-before)
	}
}

// State that goes away after a resume without one has found it is looked for again, and then read: the handle names none.
func TestStoredStateOfATextVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const n = 3 * enginetest.ToyGrid
		handle := r.alone(prose(n)).HandleDigest
		ids := r.store.Names()
		r.ingest(prose(n))
		var states []string // blobs of the state, beside those of the ids
		for _, name := range r.store.Names() {
			if kindOf(name) == "blobs" && !slices.Contains(ids, name) {
				states = append(states, name)
			}
		}
		want := r.plainText(prose(n), 6)
		id := r.submit(r.resumeJob(handle, queue.ResumeOrder{MaxTokens: 6}))
		w := r.another(r.toy)
		w.Space = &cache.Space{Store: cachetest.NewFaulty(r.store, cachetest.Fault{
			Op: cachetest.Get, Pattern: states[0], Action: cachetest.ErrorBefore, Err: cache.ErrNotFound,
		})}
		r.turn(w)
		if st := r.status(id); st.State.Final() {
			t.Fatalf("job is %s with %+v", st.State, st.Dead)
		}
		for _, name := range states {
			if err := r.store.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		r.turn(r.Worker)
		var got worker.Result
		r.result(id, &got)
		if !equalIDs(got.IDs, want) || got.Usage.Reread != n || got.Attempt != 2 {
			t.Errorf("%v with %+v in attempt %d, want %v", got.IDs, got.Usage, got.Attempt, want)
		}
	})
}

func TestResumeWithoutStateRefusals(t *testing.T) {
	const n = 3 * enginetest.ToyGrid
	for name, c := range map[string]struct {
		order queue.ResumeOrder
		spoil func(r *rig, j *queue.Job)
		class string
		says  string
	}{
		"flipped id":      {spoil: func(r *rig, _ *queue.Job) { r.harm(func(b []byte) []byte { b[4] ^= 1; return b }) }, class: "corrupt", says: "blobs/"},
		"cut ids":         {spoil: func(r *rig, _ *queue.Job) { r.harm(func(b []byte) []byte { return b[:4] }) }, class: "corrupt", says: "blobs/"},
		"missing ids":     {spoil: func(r *rig, _ *queue.Job) { r.harm(func([]byte) []byte { return nil }) }, class: "not-found", says: "blobs/"},
		"other weights":   {spoil: otherModel, class: "incompatible", says: "weights"},
		"prompt too long": {order: queue.ResumeOrder{Tokens: prose(20), Capacity: n + 10}, class: "bad-input", says: "capacity of 34"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				j := r.resumeJob(r.alone(prose(n)).HandleDigest, c.order)
				if c.spoil != nil {
					c.spoil(r, &j)
				}
				id := r.submit(j)
				r.turn(r.Worker)
				if dead := r.dead(id, c.class); !strings.Contains(dead.Reason, c.says) {
					t.Errorf("dead letter says %q, which does not name %q", dead.Reason, c.says)
				}
				if r.toy.Prefills() != 0 || r.toy.Open() != 0 {
					t.Error("something was computed or left open")
				}
			})
		})
	}
}

// Ids are of no numeric class: an engine of another one reads them, where it would refuse the state of a class that nobody
// compared, and may keep its own.
func TestResumeWithoutStateInAnotherClass(t *testing.T) {
	r := newRig(t)
	full, alone := r.ingest(prose(20)), r.alone(prose(20))
	r.toy = &enginetest.Toy{Class: "metal-h1"}
	r.Engine = r.toy
	got := r.resume(alone.HandleDigest, queue.ResumeOrder{MaxTokens: 6, Keep: true})
	if got.Usage.Restored != 0 || got.Usage.Reread != 20 || got.Handle == "" {
		t.Errorf("%+v", got)
	}
	id := r.submit(r.resumeJob(full.HandleDigest, queue.ResumeOrder{MaxTokens: 6, Keep: true}))
	r.turn(r.Worker)
	r.dead(id, "incompatible")
}

// Orders that keep no state are other jobs than those that do, and come over the wire whole.
func TestKeepStateIsPartOfTheOrder(t *testing.T) {
	r := newRig(t)
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	full, alone := r.ingestJob(prose(9), worker.IngestOptions{Submitted: at}), r.ingestJob(prose(9), worker.IngestOptions{Submitted: at, KeepState: queue.KeepNone})
	if full.ID == alone.ID {
		t.Error("both have one id")
	}
	b, err := alone.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := queue.DecodeJob(b)
	if err != nil || back.Ingest.KeepState != queue.KeepNone {
		t.Errorf("%s came back as %+v, %v", b, back.Ingest, err)
	}
	var plain map[string]json.RawMessage
	b, err = json.Marshal(full.Ingest)
	if err := errors.Join(err, json.Unmarshal(b, &plain)); err != nil || plain["keep_state"] != nil {
		t.Errorf("an order of everything says %s, %v", b, err)
	}
	for _, j := range []queue.Job{alone, r.resumeJob(cache.Sum(nil).String(), queue.ResumeOrder{KeepState: queue.KeepNone})} {
		if j.Ingest != nil {
			j.Ingest.KeepState = "half"
		}
		if err := j.Validate(); err == nil {
			t.Errorf("%+v is taken", j)
		}
	}
}
