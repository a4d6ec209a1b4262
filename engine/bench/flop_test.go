package bench_test

import (
	"os"
	"testing"

	"pgregory.net/rapid"

	"lector/engine/bench"
	"lector/engine/weights"
)

// tinyConfig is the fixture's: h 128, n 4, r 64, eight layers of which two attend, top 2 of 8 experts.
func tinyConfig(t *testing.T) *weights.Config {
	t.Helper()
	data, err := os.ReadFile("../../tests/fixtures/tiny/config.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := weights.ParseConfig(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The expectations are computed by hand from the shapes. Multiply-adds of one row: the reads of a layer are
// 2 (2*64*512 + 4*512) = 135,168, its router and shared expert 128 (8+1+192) = 25,728, a DeltaNet mixer
// 128 (256+128+8) + 128*128 = 66,560, an attention mixer 128 (256+128+96) + 128*128 = 77,824, the n-gram embedding
// 128 (512+128) = 81,920: 6 (227,456) + 2 (238,720) + 81,920 = 1,924,096 in all.
func TestChunkFLOP(t *testing.T) {
	c := tinyConfig(t)
	const (
		dense   = 2 * 1924096
		experts = 2 * 8 * 3 * 2 * 128 * 64
		scan    = 6 * 7 * 4 * 32 * 32
		head    = 2 * (2*64*512 + 512*128)
		draft   = 5*128*128 + 238720 + 3*2*128*64 // multiply-adds of a row of the draft head, its view aside
	)
	for _, test := range []struct {
		name      string
		pos, rows int
		want      bench.FLOP
	}{
		{"first token", 0, 1, bench.FLOP{Dense: dense, Experts: experts, Attention: 2 * 2 * 2 * 128, Scan: scan, Head: head, Draft: 2*(draft+2*128) + head}},
		{"two tokens", 0, 2, bench.FLOP{Dense: 2 * dense, Experts: 2 * experts, Attention: 2 * 2 * 2 * 128 * 3, Scan: 2 * scan, Head: head, Draft: 2*(2*draft+2*128*3) + head}},
		// Position 40 sees 8 blocks of 4 and itself, chosen of 10 blocks; the draft head also runs the row before it,
		// which sees 8 blocks of its 10.
		{"past the budget", 40, 1, bench.FLOP{
			Dense: dense, Experts: experts, Attention: 2 * 2 * 2 * 128 * 33, Index: 2 * 2 * 2 * 32 * 10, Scan: scan, Head: head,
			Draft: 2*(2*draft+2*128*(32+33)+2*32*(10+10)) + head,
		}},
	} {
		if got := bench.ChunkFLOP(c, test.pos, test.rows); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestVisible(t *testing.T) {
	c := tinyConfig(t)
	for _, test := range []struct{ p, tokens, scored int }{{0, 1, 0}, {31, 32, 0}, {34, 35, 0}, {35, 32, 9}, {36, 33, 9}, {4000, 33, 1000}} {
		if tokens, scored := bench.Visible(c, test.p); tokens != test.tokens || scored != test.scored {
			t.Errorf("at %d: %d tokens and %d blocks scored, want %d and %d", test.p, tokens, scored, test.tokens, test.scored)
		}
	}
}

// Cutting a chunk in two leaves its parts alone, but for the head, which runs once a chunk, and the draft head.
func TestFLOPAddUp(t *testing.T) {
	c := tinyConfig(t)
	rapid.Check(t, func(t *rapid.T) {
		pos, a, b := rapid.IntRange(0, 200).Draw(t, "pos"), rapid.IntRange(1, 80).Draw(t, "a"), rapid.IntRange(1, 80).Draw(t, "b")
		whole, cut := bench.ChunkFLOP(c, pos, a+b), bench.ChunkFLOP(c, pos, a).Add(bench.ChunkFLOP(c, pos+a, b))
		if cut.Head != 2*whole.Head {
			t.Fatalf("head %d of two chunks, %d of one", cut.Head, whole.Head)
		}
		cut.Head, cut.Draft = whole.Head, whole.Draft
		if whole != cut {
			t.Fatalf("%+v of two chunks, %+v of one", cut, whole)
		}
	})
}
