package worker_test

import (
	"errors"
	"fmt"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/queue"
	"lector/worker"
)

// A restore in which any one blob is damaged, cut or cannot be read ends the job without a word of text, or comes again;
// no sequence stays open, and with the blob put right the text is the same.
func TestFaultAtEveryBlob(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(30))
	want := r.resume(from.HandleDigest, queue.ResumeOrder{Text: "and", MaxTokens: 6})
	d, err := cache.ParseDigest(from.HandleDigest)
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.Space.Handle(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Space.Manifest(t.Context(), h.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range m.Pieces() {
		for _, action := range []cachetest.Action{cachetest.FlipByte, cachetest.Truncate, cachetest.ErrorBefore} {
			what := fmt.Sprintf("%s at blob %d of %d", action, i, len(m.Pieces()))
			name := "default/blobs/" + p.Blob.Digest.String()
			faulty := cachetest.NewFaulty(r.store, cachetest.Fault{Op: cachetest.Get, Pattern: name, Nth: 1, Action: action, Err: cache.ErrNotFound})
			w := r.another(r.toy)
			w.Space = &cache.Space{Store: faulty}
			id := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{Text: "and", MaxTokens: 6}))
			r.turn(w)
			if len(faulty.Fired()) != 1 {
				t.Fatalf("%s: %v happened", what, faulty.Fired())
			}
			class := "corrupt"
			if action == cachetest.ErrorBefore {
				class = "not-found"
			}
			r.dead(id, class)
			for _, e := range r.queue.Events(id) {
				if e.Type == queue.EventTokens {
					t.Errorf("%s: text was told", what)
				}
			}
			if r.toy.Open() != 0 {
				t.Errorf("%s: %d sequences are open", what, r.toy.Open())
			}
		}
	}
	if got := r.resume(from.HandleDigest, queue.ResumeOrder{Text: "and", MaxTokens: 6}); !equalIDs(got.IDs, want.IDs) {
		t.Errorf("afterwards: %v, want %v", got.IDs, want.IDs)
	}
}

// Restored, a long document costs the work of the prompt: far below a quarter of reading it.
func TestRestoredCostsThePromptAlone(t *testing.T) {
	r := newRig(t)
	const n = 4000
	from := r.ingest(prose(n))
	cold := r.toy.Prefilled()
	got := r.resume(from.HandleDigest, queue.ResumeOrder{Text: "and then?", MaxTokens: 1})
	work := r.toy.Prefilled() - cold
	if prompt := len(encode(t, "and then?")); cold != n || work != prompt || got.Usage.Restored != n || got.Usage.Prefilled != prompt {
		t.Errorf("cold prefilled %d, restored %d: %+v", cold, work, got.Usage)
	}
}

// What a document costs in stored bytes is its rows once, and a recurrent state a cell, kept or rolling: nothing is written
// twice, whatever is kept.
func TestWrittenBytesPerToken(t *testing.T) {
	for _, spread := range []int{1, 3, 100} {
		r := newRig(t)
		r.Worker.Config.KeepSpread = spread
		info := r.toy.Info()
		receipt := r.ingest(prose(83))
		most := int64(83*info.BytesPerToken + receipt.Chunks*info.FixedBytes)
		least := most - int64(info.BytesPerToken) // rows that trail the tokens
		if receipt.WrittenBytes > most || receipt.WrittenBytes < least {
			t.Errorf("spread of %d: %d bytes were written for a state of %d in %d cells, want %d to %d",
				spread, receipt.WrittenBytes, receipt.StateBytes, receipt.Chunks, least, most)
		}
		again := r.submit(r.ingestJob(prose(83), worker.IngestOptions{Again: "2"}))
		r.turn(r.Worker)
		if got := r.receipt(again); got.WrittenBytes != 0 {
			t.Errorf("spread of %d: read again, %d bytes were written", spread, got.WrittenBytes)
		}
	}
}

// A handle of nothing, and one that nobody stored, are refused with a typed reason.
func TestNothingToResumeFrom(t *testing.T) {
	r := newRig(t)
	for handle, class := range map[string]string{"": "bad-input", cache.Sum(nil).String(): "not-found", "lh1-x": "bad-input"} {
		id := r.submit(r.resumeJob(handle, queue.ResumeOrder{MaxTokens: 1}))
		r.turn(r.Worker)
		r.dead(id, class)
	}
	if _, err := r.Space.Handle(t.Context(), cache.Digest{}); !errors.Is(err, cache.ErrNotFound) {
		t.Error(err)
	}
}
