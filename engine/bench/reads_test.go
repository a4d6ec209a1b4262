package bench_test

import (
	"testing"

	"lector/engine/bench"
	"lector/engine/weights"
)

func openTiny(t *testing.T) *weights.Checkpoint {
	t.Helper()
	c, err := weights.Open("../../tests/fixtures/tiny")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // a mapping of a file
	return c
}

// The fixture is bf16, two bytes a value. Values by hand: the matrices of a row's multiply-adds (see TestChunkFLOP)
// and the final read, 1,924,096 + 65,536; norms of the streams 17*512, vectors of a DeltaNet layer 256*4+4+4+32, of an
// attention layer 4*32, of the n-gram embedding 3*512 + 512*4.
func TestStoredOf(t *testing.T) {
	want := bench.Stored{
		Trunk: 2 * (1924096 + 65536 + 17*512 + 6*(256*4+4+4+32) + 2*4*32 + 3*512 + 512*4),
		Embed: 2 * 128, Ngram: 2 * 32, Head: 2 * 512 * 128,
		Draft:     2 * (238720 + 2*128*128 + 65536 + 3*512 + 4*32 + 128 + 512),
		DraftRows: 2 * (2*128*128 + 128 + 512 + 512 + 2*64*512 + 2*64*128 + 32 + 96*128 + 32), // fc, norms, the gated read, K, V, index
		Record:    2 * 3 * 128 * 64, DraftRecord: 2 * 3 * 128 * 64,
	}
	if got := bench.StoredOf(openTiny(t)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestStepReads(t *testing.T) {
	c := openTiny(t)
	s := bench.StoredOf(c)
	const layerCache = 4 * (2*33*2*32 + 10*32) // the row at 40 sees 33 tokens and scores 10 blocks
	const draftCache = 4 * (2*32*2*32 + 10*32) // the draft head's at 39 sees 32
	want := bench.Reads{
		Weights: s.Trunk + 256 + 4*64, Experts: 8 * 2 * 49152, Head: 131072, Draft: s.DraftRows,
		State: 4 * (6*(4*32*32+3*256) + 3*3*512), Cache: 2 * layerCache,
	}
	if got := bench.StepReads(c.Config(), s, 40, 0); got != want {
		t.Errorf("one row: %+v, want %+v", got, want)
	}
	// One draft: two rows, the last at 41, which touch 8 (1 - (3/4)²) = 3.5 experts a layer; and the head drafts once.
	want = bench.Reads{
		Weights: s.Trunk + 2*(256+4*64), Experts: 8 * 49152 * 7 / 2, Head: 131072, Draft: s.DraftRows + s.Draft + 2*49152 + 131072,
		State: want.State, Cache: 2*4*(2*34*2*32+10*32) + draftCache,
	}
	if got := bench.StepReads(c.Config(), s, 40, 1); got != want {
		t.Errorf("two rows: %+v, want %+v", got, want)
	}
}
