package worker_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// hoard counts how many rolling states a store holds at most.
type hoard struct {
	*cachetest.Memory
	mu   sync.Mutex
	most int
}

func (h *hoard) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	err := h.Memory.Put(ctx, name, body, size, how)
	rolling := 0
	for _, n := range h.Names() {
		if kindOf(n) == "rolling" {
			rolling++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = max(h.most, rolling)
	return err
}

// blobBytes is what all blobs hold.
func blobBytes(s *cachetest.Memory) (total int) {
	for _, name := range s.Names() {
		if kindOf(name) == "blobs" {
			b, _ := s.Bytes(name)
			total += len(b)
		}
	}
	return total
}

// rowBytes is the formula of what n tokens of a toy add to a store: what one adds, but for the row that a region that
// trails by one does not have yet.
func rowBytes(toy *enginetest.Toy, n int) int {
	const mtpRow = 2 * 4
	return toy.Info().BytesPerToken*n - mtpRow
}

// Eight states of a document are kept, spread over it, and the rolling one beside; nothing is stored twice, neither
// where a text goes on from a handle nor where another document has the same beginning.
func TestLineageStoresNothingTwice(t *testing.T) {
	for _, spooled := range []bool{false, true} {
		const cells = 40
		tokens := prose(cells * enginetest.ToyGrid)
		r := newRig(t)
		h := &hoard{Memory: r.store}
		r.Space.Store = h
		if spooled {
			r.spooled(h)
		}
		fixed := r.toy.Info().FixedBytes
		first := r.ingest(tokens)
		want := rowBytes(r.toy, len(tokens)) + 8*fixed
		if got := blobBytes(r.store); got != want {
			t.Errorf("spooled %v: blobs hold %d bytes, the formula says %d", spooled, got, want)
		}
		if h.most > 2 { // one comes before the other goes
			t.Errorf("spooled %v: %d rolling states at once", spooled, h.most)
		}
		kept := keptAt(r, tokens)
		for i, at := range kept {
			if part := (i + 1) * len(tokens) / 8; at != part {
				t.Errorf("spooled %v: state %d of 8 is kept at %d, not at %d", spooled, i+1, at, part)
			}
		}
		longer := slices.Concat(tokens, prose(2*enginetest.ToyGrid))
		id := r.submit(r.ingestJob(longer, worker.IngestOptions{}))
		r.turn(r.Worker)
		r.receipt(id)
		more := 0 // states of the new cells that the longer document keeps
		for _, c := range worker.Plan(len(longer), enginetest.ToyGrid, enginetest.ToyMaxChunk, 8)[cells:] {
			if c.Keep {
				more++
			}
		}
		want = rowBytes(r.toy, len(longer)) + (8+more)*fixed
		if got := blobBytes(r.store); got != want {
			t.Errorf("spooled %v: with a longer document blobs hold %d bytes, the formula says %d", spooled, got, want)
		}
		out := r.resume(first.HandleDigest, queue.ResumeOrder{Tokens: longer[len(tokens):], MaxTokens: 1, Keep: true})
		if out.Usage.Prefilled != 2*enginetest.ToyGrid {
			t.Errorf("resume: %+v", out.Usage)
		}
		// It has read what the longer document has, and one token more with the state behind it, or none when that
		// token ends the text.
		if got := blobBytes(r.store) - want; got != 0 && got != fixed && got != r.toy.Info().BytesPerToken+fixed {
			t.Errorf("spooled %v: a text that goes on adds %d bytes of blobs", spooled, got)
		}
		for _, name := range r.store.Names() {
			if strings.Contains(name, "/rolling/") {
				t.Errorf("spooled %v: %s is left", spooled, name)
			}
		}
	}
}

// keptAt lists the boundaries of a document whose state can be restored by anybody.
func keptAt(r *rig, tokens []int32) (kept []int) {
	r.Helper()
	ends := cache.Boundaries(len(tokens), enginetest.ToyGrid)
	keys := cache.Keys(r.identity().Producer, tokens, ends)
	for i := range keys {
		n, _, err := r.Space.Deepest(r.Context(), "", keys[:i+1])
		if err != nil {
			r.Fatal(err)
		}
		if n == i+1 {
			kept = append(kept, ends[i])
		}
	}
	if len(kept) != 8 {
		r.Errorf("states are kept at %v", kept)
	}
	return kept
}

// Two documents with one beginning of ten thousand tokens store it once.
func TestLongPrefixIsStoredOnce(t *testing.T) {
	const shared, rest = 10_000, 100
	r := newRig(t)
	r.toy.Grid, r.toy.MaxTokens, r.toy.MaxChunk = 500, 20_000, 500
	beginning := prose(shared)
	a := slices.Concat(beginning, prose(rest))
	b := slices.Concat(beginning, slices.Repeat([]int32{7}, rest))
	r.ingest(a)
	alone := blobBytes(r.store)
	got := r.ingest(b)
	if got.Tokens != (worker.TokenCounts{Total: shared + rest, Restored: shared - 500, Computed: rest + 500, Deduped: 500}) {
		t.Errorf("the second document: %+v", got.Tokens) // of the states of the beginning, the last that is kept lies a cell before its end
	}
	if added, want := blobBytes(r.store)-alone, rest*r.toy.Info().BytesPerToken+r.toy.Info().FixedBytes; added != want {
		t.Errorf("the second document adds %d bytes of blobs, its own %d tokens take %d", added, rest, want)
	}
}
