package worker_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// rig is a worker with everything around it in memory.
type rig struct {
	*testing.T
	store *cachetest.Memory
	queue *queuetest.Memory
	toy   *enginetest.Toy
	*worker.Worker
}

// newRig builds an empty one; the toy's grid is enginetest.ToyGrid tokens.
func newRig(t *testing.T) *rig {
	r := &rig{T: t, store: cachetest.NewMemory(), queue: queuetest.NewMemory(nil), toy: &enginetest.Toy{}}
	r.Worker = r.another(r.toy)
	return r
}

// another is a second worker on the same queue and store, with an engine of its own.
func (r *rig) another(toy *enginetest.Toy) *worker.Worker {
	return &worker.Worker{
		Queue: r.queue, Space: &cache.Space{Store: r.store}, Engine: toy,
		Tokenizer: enginetest.ToyTokenizer{}, Salt: []byte("salt"), Host: "test",
	}
}

// prose gives n tokens; the first of a longer text are those of a shorter one.
func prose(n int) []int32 {
	ids, err := enginetest.ToyTokenizer{}.Encode(strings.Repeat("It was a bright cold day, and the clocks were striking 13. ", n/20+1))
	if err != nil {
		panic(err)
	}
	return ids[:n]
}

func (r *rig) identity() cache.Identity {
	r.Helper()
	id, err := r.Engine.Identity()
	if err != nil {
		r.Fatal(err)
	}
	fields := make([]cache.Field, len(id.Fields))
	for i, f := range id.Fields {
		fields[i] = cache.Field(f)
	}
	return cache.NewIdentity(fields, id.Class, id.Grid, r.Salt)
}

// ingestJob stores a document and builds the order for it.
func (r *rig) ingestJob(tokens []int32, o worker.IngestOptions) queue.Job {
	r.Helper()
	return r.ingestJobIn(r.store, tokens, o)
}

func (r *rig) ingestJobIn(store cache.Store, tokens []int32, o worker.IngestOptions) queue.Job {
	r.Helper()
	d, err := worker.StoreDocument(r.Context(), &cache.Space{Store: store}, tokens)
	if err != nil {
		r.Fatal(err)
	}
	if o.Submitted.IsZero() {
		o.Submitted = time.Now()
	}
	o.Tokens = len(tokens)
	return worker.NewIngest(r.identity(), d, o)
}

func (r *rig) submit(j queue.Job) string {
	r.Helper()
	if _, err := r.queue.Submit(r.Context(), j); err != nil {
		r.Fatal(err)
	}
	return j.ID
}

// turn lets w work on the next delivery.
func (r *rig) turn(w *worker.Worker) {
	r.Helper()
	d, err := w.Queue.Next(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	if err := w.Handle(r.Context(), d); err != nil {
		r.Fatal(err)
	}
}

// background is turn for a goroutine beside the test's.
func (r *rig) background(w *worker.Worker) {
	d, err := w.Queue.Next(r.Context())
	if err == nil {
		err = w.Handle(r.Context(), d)
	}
	if err != nil {
		r.Error(err)
	}
}

func (r *rig) status(id string) queue.Status {
	r.Helper()
	st, err := r.queue.Status(r.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	return st
}

// receipt is the result of an ingest that must be done.
func (r *rig) receipt(id string) (out worker.Receipt) {
	r.Helper()
	r.result(id, &out)
	return out
}

func (r *rig) result(id string, out any) {
	r.Helper()
	st := r.status(id)
	if st.State != queue.Done {
		r.Fatalf("job %s is %s, dead letter %+v", id, st.State, st.Dead)
	}
	if err := json.Unmarshal(st.Result, out); err != nil {
		r.Fatal(err)
	}
}

// dead is the reason of a job that must have failed with the class.
func (r *rig) dead(id, class string) queue.Dead {
	r.Helper()
	st := r.status(id)
	if st.State != queue.Failed || st.Dead == nil || st.Dead.Class != class {
		r.Fatalf("job %s is %s with %+v, want failed as %s", id, st.State, st.Dead, class)
	}
	if n := r.queue.Pending(); n != 0 {
		r.Fatalf("%d jobs are still in the queue after a dead letter", n)
	}
	return *st.Dead
}

// ingest reads a document with the rig's worker.
func (r *rig) ingest(tokens []int32) worker.Receipt {
	r.Helper()
	id := r.submit(r.ingestJob(tokens, worker.IngestOptions{Name: "prose"}))
	r.turn(r.Worker)
	return r.receipt(id)
}

// resumeJob builds a resume of a receipt's handle with seed 1.
func (r *rig) resumeJob(handle string, o queue.ResumeOrder) queue.Job {
	r.Helper()
	o.Handle = handle
	if o.MaxTokens == 0 {
		o.MaxTokens = 24
	}
	seed := uint64(1)
	return worker.NewResume(r.identity(), o, worker.ResumeOptions{Submitted: time.Now(), Seed: &seed})
}

// resume goes on from a handle with the rig's worker.
func (r *rig) resume(handle string, o queue.ResumeOrder) (out worker.Result) {
	r.Helper()
	id := r.submit(r.resumeJob(handle, o))
	r.turn(r.Worker)
	r.result(id, &out)
	r.story(id, out)
	return out
}

// story checks that the token events of a resume's attempt add up to its result.
func (r *rig) story(id string, want worker.Result) {
	r.Helper()
	texts := want.Branches
	if len(texts) == 0 {
		texts = []worker.Branch{{Text: want.Text, IDs: want.IDs, FinishReason: want.FinishReason}}
	}
	for _, b := range texts {
		r.storyOf(id, want.Attempt, b)
	}
}

func (r *rig) storyOf(id string, attempt int, want worker.Branch) {
	r.Helper()
	var text strings.Builder
	var ids []int32
	finish := ""
	for _, e := range r.queue.Events(id) {
		switch {
		case e.Type == queue.EventStarted && e.Attempt == attempt: // it may have begun before and been given back
			text.Reset()
			ids, finish = nil, ""
		case e.Type != queue.EventTokens || e.Attempt != attempt || e.Branch != want.Index:
			continue
		}
		if e.Type == queue.EventTokens && (e.First != len(ids) || e.Offset != text.Len() || finish != "") {
			r.Errorf("tokens event of branch %d begins at %d, byte %d, after %d tokens and %d bytes that ended with %q", e.Branch, e.First, e.Offset, len(ids), text.Len(), finish)
		}
		ids = append(ids, e.IDs...)
		text.WriteString(e.Text)
		finish = e.Finish
	}
	if text.String() != want.Text || !equalIDs(ids, want.IDs) || finish != want.FinishReason {
		r.Errorf("events tell %q %v (%s), the result is %q %v (%s)", text.String(), ids, finish, want.Text, want.IDs, want.FinishReason)
	}
}

func equalIDs(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// types lists the types of a job's events in order.
func (r *rig) types(id string) (out []queue.EventType) {
	for _, e := range r.queue.Events(id) {
		out = append(out, e.Type)
	}
	return out
}

// plainText is what the toy says after tokens, greedily, without any worker: n tokens or up to the stop id.
func (r *rig) plainText(tokens []int32, n int) []int32 {
	r.Helper()
	seq, err := r.toy.NewSequence(0)
	if err != nil {
		r.Fatal(err)
	}
	defer seq.Close()
	for from := 0; from < len(tokens); from += enginetest.ToyMaxChunk {
		if _, err := seq.Prefill(r.Context(), tokens[from:min(from+enginetest.ToyMaxChunk, len(tokens))], nil); err != nil {
			r.Fatal(err)
		}
	}
	var out []int32
	for len(out) < n {
		p, err := seq.Probe(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		if p.Next == enginetest.ToyEnd {
			break
		}
		out = append(out, p.Next)
		if _, err := seq.Prefill(r.Context(), []engine.Token{p.Next}, nil); err != nil {
			r.Fatal(err)
		}
	}
	return out
}
