package worker_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

func TestIngest(t *testing.T) {
	r := newRig(t)
	id := r.submit(r.ingestJob(prose(43), worker.IngestOptions{Name: "prose"}))
	r.turn(r.Worker)
	got := r.receipt(id)
	if got.Tokens != (worker.TokenCounts{Total: 43, Computed: 43}) || got.Chunks != 6 || got.Name != "prose" || got.Host != "test" {
		t.Errorf("receipt is %+v", got)
	}
	if got.Engine.Tokens != 43 || got.StateBytes == 0 || got.WrittenBytes < got.StateBytes || got.Handle == "" {
		t.Errorf("receipt is %+v", got)
	}
	s := got.Seconds
	if sum := s.Wait + s.Restore + s.Prefill + s.Store + s.Other; math.Abs(sum-s.Total) > 1e-9 {
		t.Errorf("parts are %g seconds together, the whole is %g", sum, s.Total)
	}
	want := []queue.EventType{queue.EventStarted}
	for range got.Chunks {
		want = append(want, queue.EventProgress)
	}
	if story := r.types(id); !slices.Equal(story, append(want, queue.EventDone)) {
		t.Errorf("the story is %v", story)
	}
	if n := r.toy.Open(); n != 0 {
		t.Errorf("%d sequences are open", n)
	}
}

func TestSharedPrefixIsPrefilledOnlyFromThere(t *testing.T) {
	r := newRig(t)
	r.ingest(prose(43))
	before := r.toy.Prefilled()
	longer := append(slices.Clone(prose(43)[:40]), prose(20)...) // shares five whole cells
	id := r.submit(r.ingestJob(longer, worker.IngestOptions{}))
	r.turn(r.Worker)
	got := r.receipt(id)
	if n := r.toy.Prefilled() - before; n != 20 || got.Tokens != (worker.TokenCounts{Total: 60, Restored: 40, Computed: 20}) {
		t.Errorf("%d tokens were prefilled, receipt counts %+v", n, got.Tokens)
	}
	alone := newRig(t)
	if want := alone.ingest(longer); want.HandleDigest != got.HandleDigest {
		t.Errorf("handle is %s, without the shared prefix %s", got.Handle, want.Handle)
	}
}

func TestSameDocumentAgain(t *testing.T) {
	r := newRig(t)
	r.ingest(prose(43))
	before := r.toy.Prefilled()
	id := r.submit(r.ingestJob(prose(43), worker.IngestOptions{TTL: time.Hour})) // another order, another handle
	r.turn(r.Worker)
	got := r.receipt(id)
	if r.toy.Prefilled() != before || got.Tokens != (worker.TokenCounts{Total: 43, Restored: 43}) || got.Expires == nil {
		t.Errorf("%d tokens were prefilled, receipt %+v", r.toy.Prefilled()-before, got)
	}
	same := r.ingestJob(prose(43), worker.IngestOptions{TTL: time.Hour, Submitted: time.Now().Add(time.Minute)})
	if st, err := r.queue.Submit(t.Context(), same); err != nil || st.Job.ID != id || st.State != queue.Done {
		t.Errorf("the same order again is %s %s (%v), not the job that stands", st.Job.ID, st.State, err)
	}
}

// Where no state is kept, only rows are found: they are computed again and stored once.
func TestDedupedRows(t *testing.T) {
	r := newRig(t)
	r.ingest(prose(43))
	for _, name := range r.store.Names() {
		if kindOf(name) == "nodes" || kindOf(name) == "keep" {
			if err := r.store.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	id := r.submit(r.ingestJob(prose(43), worker.IngestOptions{Again: "x"}))
	r.turn(r.Worker)
	if got := r.receipt(id); got.Tokens != (worker.TokenCounts{Total: 43, Computed: 43, Deduped: 43}) || got.ReusedBytes == 0 {
		t.Errorf("receipt is %+v", got)
	}
}

// Two documents share a prefix. While one worker computes its first cells, another waits and then takes them.
func TestNodeLeaseWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		block := enginetest.BlockPrefill(1)
		r.toy.BeforePrefill = block.Hook
		first := r.submit(r.ingestJob(prose(16), worker.IngestOptions{}))
		go r.background(r.Worker)
		<-block.Started
		second := r.submit(r.ingestJob(append(slices.Clone(prose(16)), 9, 9, 9), worker.IngestOptions{}))
		toy := &enginetest.Toy{}
		done := make(chan struct{})
		go func() {
			r.background(r.another(toy))
			close(done)
		}()
		time.Sleep(2 * time.Minute) // several times what the lease and the delivery last without heartbeats
		if toy.Prefilled() != 0 {
			t.Errorf("the second worker computed %d tokens that the first one claims", toy.Prefilled())
		}
		close(block.Release)
		<-done
		synctest.Wait()
		a, b := r.receipt(first), r.receipt(second)
		if a.Tokens.Computed != 16 || b.Tokens.Restored+b.Tokens.Computed != 19 || b.Tokens.Restored < 8 {
			t.Errorf("first counts %+v, second %+v", a.Tokens, b.Tokens)
		}
		if b.Seconds.Wait < 100 || b.Attempt != 1 {
			t.Errorf("the second worker says that it waited %g seconds, in attempt %d", b.Seconds.Wait, b.Attempt)
		}
	})
}

// A worker that died holds its claim until that ends by itself.
func TestDeadWorkersClaimEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tokens := prose(10)
		keys := cache.Keys(r.identity().Producer, tokens, cache.Boundaries(len(tokens), enginetest.ToyGrid))
		if _, err := r.queue.Acquire(t.Context(), "node-"+keys[0].String(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := r.ingest(tokens); got.Seconds.Wait < 59 || got.Seconds.Wait > 62 || got.Tokens.Computed != 10 {
			t.Errorf("waited %g seconds, counts %+v", got.Seconds.Wait, got.Tokens)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		block := enginetest.BlockPrefill(3)
		r.toy.BeforePrefill = block.Hook
		id := r.submit(r.ingestJob(prose(43), worker.IngestOptions{}))
		ctx, drain := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Worker.Run(ctx, queue.Ingest) }()
		<-block.Started
		drain()
		synctest.Wait()
		close(block.Release) // the chunk at hand is finished
		if err := <-ended; err != nil {
			t.Errorf("a drain ends with %v", err)
		}
		if st := r.status(id); st.State != queue.Queued || st.Attempts != 0 || r.queue.Calls("Release") != 1 {
			t.Errorf("after a drain the job is %s after %d attempts", st.State, st.Attempts)
		}
		r.turn(r.another(&enginetest.Toy{}))
		if got := r.receipt(id); got.Tokens.Restored != 24 || got.Attempt != 1 {
			t.Errorf("the next worker restored %d tokens in attempt %d, want 24 in 1", got.Tokens.Restored, got.Attempt)
		}
	})
}

func TestDrainWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tokens := prose(8)
		key := cache.Keys(r.identity().Producer, tokens, []int{8})[0]
		if _, err := r.queue.Acquire(t.Context(), "node-"+key.String(), time.Hour); err != nil {
			t.Fatal(err)
		}
		id := r.submit(r.ingestJob(tokens, worker.IngestOptions{}))
		ctx, drain := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Worker.Run(ctx) }()
		time.Sleep(time.Minute)
		drain()
		if err := <-ended; err != nil || r.status(id).State != queue.Queued {
			t.Errorf("a drain ends with %v, job is %s", err, r.status(id).State)
		}
	})
}

// One bad document never stops the others.
func TestPoisonDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.toy.BeforePrefill = func(_ context.Context, _ int, tokens []engine.Token) error {
			if slices.Contains(tokens, 7) {
				return errors.New("kernel fault")
			}
			return nil
		}
		bad := r.submit(r.ingestJob(append(slices.Clone(prose(16)), 7), worker.IngestOptions{}))
		good := r.submit(r.ingestJob(prose(12), worker.IngestOptions{}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Worker.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		dead := r.dead(bad, "attempts")
		if dead.LastGood != 16 || !strings.Contains(dead.Reason, "kernel fault") {
			t.Errorf("dead letter is %+v", dead)
		}
		if st := r.status(bad); st.Attempts != 5 {
			t.Errorf("it was tried %d times", st.Attempts)
		}
		r.receipt(good)
		story := r.types(bad)
		if story[len(story)-1] != queue.EventFailed || !slices.Contains(story, queue.EventRetry) {
			t.Errorf("the story is %v", story)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A job whose workers die before they can say so runs out of attempts as well.
func TestAttemptsOfTheSilent(t *testing.T) {
	r := newRig(t)
	id := r.submit(r.ingestJob(prose(12), worker.IngestOptions{}))
	for range 5 {
		if _, err := r.queue.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.queue.Expire(id)
	}
	r.turn(r.Worker)
	r.dead(id, "attempts")
	if r.toy.Prefills() != 0 {
		t.Error("a job beyond its attempts was worked on")
	}
}

func TestIngestRefusals(t *testing.T) {
	big := prose(50)
	for name, c := range map[string]struct {
		spoil func(r *rig, j *queue.Job)
		class string
	}{
		"document that is not stored": {func(r *rig, j *queue.Job) { j.Ingest.Document = cache.Sum([]byte("x")).String() }, "not-found"},
		"document that is no digest":  {func(r *rig, j *queue.Job) { j.Ingest.Document = "novel.txt" }, "bad-input"},
		"beyond capacity":             {func(r *rig, j *queue.Job) { j.Ingest.Capacity = 49 }, "bad-input"},
		"beyond the model":            {func(r *rig, j *queue.Job) { r.toy.MaxTokens = 49 }, "bad-input"},
		"beyond the worker":           {func(r *rig, j *queue.Job) { r.Config.Capacity = 49 }, "bad-input"},
		"another model's":             {func(r *rig, j *queue.Job) { j.Model = cache.Sum([]byte("x")).String() }, "incompatible"},
		"damaged document": {func(r *rig, j *queue.Job) {
			name := "default/documents/" + j.Ingest.Document
			b, _ := r.store.Bytes(name)
			b[0] ^= 1
			r.store.SetBytes(name, b)
		}, "corrupt"},
		"token outside the vocabulary": {func(r *rig, j *queue.Job) {
			d, err := worker.StoreDocument(r.Context(), r.Space, []int32{1, enginetest.ToyVocabulary})
			if err != nil {
				r.Fatal(err)
			}
			j.Ingest.Document, j.Ingest.Tokens = d.String(), 2
		}, "bad-input"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			j := r.ingestJob(big, worker.IngestOptions{})
			c.spoil(r, &j)
			id := r.submit(j)
			r.turn(r.Worker)
			r.dead(id, c.class)
			if r.toy.Prefills() != 0 || r.queue.Calls("PublishHandle") != 0 {
				t.Error("something was computed or published")
			}
		})
	}
	if _, err := worker.StoreDocument(t.Context(), newRig(t).Space, nil); !errors.Is(err, worker.ErrInput) {
		t.Errorf("an empty document: %v", err)
	}
}

func TestConflictingHandle(t *testing.T) {
	r := newRig(t)
	other := r.ingest(prose(8))
	id := r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
	digest, err := cache.ParseDigest(other.HandleDigest)
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Space.Handle(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody published another handle between our look for one and our own.
	r.Worker.Queue = conflict{r.queue, h.Encode()}
	d, err := r.queue.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Handle(t.Context(), d); !errors.Is(err, cache.ErrDiverged) {
		t.Errorf("a conflicting handle ends with %v", err)
	}
	dead := r.dead(id, "diverged")
	if a := dead.Alarm; a == nil || a.Of != "handle" || a.Key != id || a.Stored != cache.Sum(h.Encode()).String() || a.Computed == a.Stored {
		t.Errorf("alarm %+v", a)
	}
}

type conflict struct {
	*queuetest.Memory
	standing []byte
}

func (c conflict) PublishHandle(context.Context, string, []byte) ([]byte, error) {
	return c.standing, nil
}

func TestQueueGone(t *testing.T) {
	r := newRig(t)
	r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
	r.queue.Fail(queuetest.Rule{Op: "Acquire", Nth: 2, Err: queue.ErrClosed})
	if err := r.Worker.Run(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("a queue that is gone ends the worker with %v", err)
	}
	if r.toy.Open() != 0 {
		t.Errorf("%d sequences are open", r.toy.Open())
	}
}

// A heartbeat that fails once is no loss; silence for the whole redelivery time is.
func TestHeartbeats(t *testing.T) {
	for name, c := range map[string]struct {
		failures int
		lost     bool
	}{"one failure": {1, false}, "silence": {10, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				for i := range c.failures {
					r.queue.Fail(queuetest.Rule{Op: "Extend", Nth: i + 1, Err: errors.New("no answer")})
				}
				r.toy.BeforePrefill = func(ctx context.Context, _ int, _ []engine.Token) error {
					select {
					case <-time.After(25 * time.Second):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				id := r.submit(r.ingestJob(prose(43), worker.IngestOptions{}))
				r.turn(r.Worker)
				if lost := r.status(id).State != queue.Done; lost != c.lost {
					t.Errorf("after %d failed heartbeats the job is %s", c.failures, r.status(id).State)
				}
				if n := r.queue.Calls("Retry"); n != 0 {
					t.Errorf("a lost delivery was given back %d times", n)
				}
			})
		})
	}
}
