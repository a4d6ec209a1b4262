package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
	"lector/worker/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a client with a queue and a store in memory, and workers as wanted.
type rig struct {
	*testing.T
	*client.Client
	queue *queuetest.Memory
	toy   *enginetest.Toy
}

func newRig(t *testing.T) *rig {
	q := queuetest.NewMemory(nil)
	return &rig{t, &client.Client{Queue: q, Space: &cache.Space{Store: cachetest.NewMemory()}}, q, &enginetest.Toy{}}
}

// worker serves until the returned call, which waits for its end.
func (r *rig) worker() (stop func()) {
	w := &worker.Worker{Queue: r.queue, Space: r.Space, Engine: r.toy, Tokenizer: enginetest.ToyTokenizer{}, Host: "test"}
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Serve(ctx, worker.Slots{queue.Ingest: 1, queue.Resume: 2}) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
	}
}

func (r *rig) identity() cache.Identity {
	id, err := r.toy.Identity()
	if err != nil {
		r.Fatal(err)
	}
	var fields []cache.Field
	for _, f := range id.Fields {
		fields = append(fields, cache.Field(f))
	}
	return cache.NewIdentity(fields, id.Class, id.Grid, nil)
}

// text gives token ids of the toy.
func text(s string) []int32 {
	ids, err := enginetest.ToyTokenizer{}.Encode(s)
	if err != nil {
		panic(err)
	}
	return ids
}

func (r *rig) ingest(o worker.IngestOptions) worker.Receipt {
	r.Helper()
	s, err := r.Ingest(r.Context(), r.identity(), text("A long story of which a part matters."), o)
	if err != nil {
		r.Fatal(err)
	}
	receipt, err := r.Receipt(r.Context(), s.Job.ID)
	if err != nil {
		r.Fatal(err)
	}
	return receipt
}

// What is submitted is done, found again, and read again when its handle has expired.
func TestIngest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.worker()()
		first := r.ingest(worker.IngestOptions{TTL: time.Hour, Name: "story"})
		if again := r.ingest(worker.IngestOptions{TTL: time.Hour}); again.Handle != first.Handle || again.Name != "story" {
			t.Errorf("submitted again: %+v, was %+v", again, first)
		}
		time.Sleep(2 * time.Hour)
		later := r.ingest(worker.IngestOptions{TTL: time.Hour})
		if later.Handle == first.Handle || later.Tokens.Computed != 0 {
			t.Errorf("after the handle's time: %+v", later)
		}
		if r.ingest(worker.IngestOptions{TTL: time.Hour}).Handle != later.Handle {
			t.Error("the job that was read again is not found")
		}
		s, err := r.Ingest(r.Context(), r.identity(), text("A long story of which a part matters."), worker.IngestOptions{TTL: time.Hour})
		if err != nil || s.State != queue.Done {
			t.Fatalf("what is done is %s: %v", s.State, err)
		}
		d, h, err := r.Handle(r.Context(), s.Job.ID)
		if err != nil || cache.HandleName(d) != later.Handle || h.Tokens != later.Tokens.Total {
			t.Errorf("published handle %s of %d tokens, receipt says %+v: %v", cache.HandleName(d), h.Tokens, later, err)
		}
	})
}

// A text is streamed, waited for, and attached to after its end; several have their own.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.worker()()
		from := r.ingest(worker.IngestOptions{})
		for _, branches := range []int{0, 3} {
			order := queue.ResumeOrder{Handle: from.HandleDigest, Text: "and then", MaxTokens: 12, Branches: branches, Sampling: queue.Sampling{Temperature: 3}}
			s, err := r.Resume(t.Context(), order, worker.ResumeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			live, err := client.Texts(r.Stream(t.Context(), s.Job.ID, nil))
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Result(t.Context(), s.Job.ID)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{got.Text}
			for i, b := range got.Branches {
				want = append(want[:i], b.Text)
			}
			late, err := client.Texts(r.Stream(t.Context(), s.Job.ID, nil))
			if err != nil || strings.Join(live, "|") != strings.Join(want, "|") || strings.Join(late, "|") != strings.Join(want, "|") {
				t.Errorf("result %q, streamed %q, afterwards %q: %v", want, live, late, err)
			}
		}
	})
}

// A key is one document's for good.
func TestKey(t *testing.T) {
	r := newRig(t)
	one, err := r.Ingest(t.Context(), r.identity(), text("one"), worker.IngestOptions{Key: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.Ingest(t.Context(), r.identity(), text("one"), worker.IngestOptions{Key: "mine"}); err != nil || again.Job.ID != one.Job.ID {
		t.Errorf("the same order is job %s, was %s: %v", again.Job.ID, one.Job.ID, err)
	}
	if _, err := r.Ingest(t.Context(), r.identity(), text("another"), worker.IngestOptions{Key: "mine"}); !errors.Is(err, client.ErrKey) {
		t.Errorf("another document under the key: %v", err)
	}
}

func TestResumeChecksTheHandle(t *testing.T) {
	r := newRig(t)
	order := queue.ResumeOrder{Handle: cache.Sum(nil).String(), MaxTokens: 1}
	if _, err := r.Resume(t.Context(), order, worker.ResumeOptions{}); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("an unknown handle: %v", err)
	}
	order.Handle = "lh1-nonsense"
	if _, err := r.Resume(t.Context(), order, worker.ResumeOptions{}); err == nil {
		t.Error("a mistyped handle was taken")
	}
}

// However a job ends, waiting ends too, and says how.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.worker()
		from := r.ingest(worker.IngestOptions{})
		s, err := r.Resume(t.Context(), queue.ResumeOrder{Handle: from.HandleDigest, Tokens: []int32{99999}, MaxTokens: 1}, worker.ResumeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var failed *client.Failed
		_, err = r.Result(t.Context(), s.Job.ID)
		_, streamed := client.Texts(r.Stream(t.Context(), s.Job.ID, nil))
		if !errors.As(err, &failed) || failed.Dead.Class != "bad-input" || !errors.As(streamed, &failed) {
			t.Errorf("failed job: %v, streamed: %v", err, streamed)
		}
		stop()
		waits, err := r.Resume(t.Context(), queue.ResumeOrder{Handle: from.HandleDigest, MaxTokens: 1}, worker.ResumeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, func() { // nobody tells of it
			waits.State = queue.Cancelled
			if err := r.queue.SetStatus(t.Context(), waits); err != nil {
				t.Error(err)
			}
		})
		if _, err := r.Result(t.Context(), waits.Job.ID); !errors.Is(err, client.ErrCancelled) {
			t.Errorf("cancelled job: %v", err)
		}
		late, err := r.Resume(t.Context(), queue.ResumeOrder{Handle: from.HandleDigest, MaxTokens: 1}, worker.ResumeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		late.State = queue.Expired
		if err := r.queue.SetStatus(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Result(t.Context(), late.Job.ID); !errors.Is(err, client.ErrExpired) {
			t.Errorf("expired job: %v", err)
		}
		if _, err := r.Follow(t.Context(), "nobody", nil); !errors.Is(err, queue.ErrUnknown) {
			t.Errorf("unknown job: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		open, err := r.Resume(t.Context(), queue.ResumeOrder{Handle: from.HandleDigest, MaxTokens: 1}, worker.ResumeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Follow(ctx, open.Job.ID, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gave up: %v", err)
		}
		if st, err := r.queue.Status(t.Context(), open.Job.ID); err != nil || st.State != queue.Queued {
			t.Errorf("the job that was not waited for is %s: %v", st.State, err)
		}
	})
}

// A worker that dies in the middle of a text is followed by another; who listens hears one text.
func TestStreamOutlivesTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.worker()
		from := r.ingest(worker.IngestOptions{})
		n := 0
		r.toy.BeforeDecode = func(context.Context, int, []engine.Token) error {
			if n++; n%7 == 0 && n < 30 {
				return engine.ErrDevice
			}
			return nil
		}
		order := queue.ResumeOrder{Handle: from.HandleDigest, MaxTokens: 15, Branches: 2, Drafts: 1, Sampling: queue.Sampling{Temperature: 3}}
		long := uint64(1) // both texts of this seed are long enough to be interrupted twice
		s, err := r.Resume(t.Context(), order, worker.ResumeOptions{Seed: &long})
		if err != nil {
			t.Fatal(err)
		}
		live, err := client.Texts(r.Stream(t.Context(), s.Job.ID, nil))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Result(t.Context(), s.Job.ID)
		if err != nil || got.Attempt < 3 || live[0] != got.Branches[0].Text || live[1] != got.Branches[1].Text {
			t.Errorf("attempt %d says %+v, streamed %q: %v", got.Attempt, got.Branches, live, err)
		}
		stop()
	})
}

// A result that is too large for a message comes from the store.
func TestLargeResult(t *testing.T) {
	r := newRig(t)
	stored := worker.Result{Text: "all of it", IDs: []int32{1, 2}, FinishReason: worker.FinishLength}
	body, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	j := queue.Job{Version: queue.JobVersion, ID: "large", Kind: queue.Resume, Model: "m", Priority: "normal", Resume: &queue.ResumeOrder{Handle: "h", MaxTokens: 1}}
	st, err := r.queue.Submit(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Space.PutResult(t.Context(), "large", body); err != nil {
		t.Fatal(err)
	}
	st.State, st.Result = queue.Done, []byte(`{"stored":true}`)
	if err := r.queue.SetStatus(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	r.Poll = time.Millisecond // there are no events
	if got, err := r.Result(t.Context(), "large"); err != nil || got.Text != "all of it" || got.Stored {
		t.Errorf("%+v: %v", got, err)
	}
	if got, err := client.Texts(r.Stream(t.Context(), "large", nil)); err != nil || len(got) != 1 || got[0] != "all of it" {
		t.Errorf("streamed %q: %v", got, err)
	}
}
