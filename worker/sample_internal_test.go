package worker

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lector/engine"
	"lector/queue"
)

// The known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
func TestPhilox(t *testing.T) {
	ones := uint32(math.MaxUint32)
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
}

func TestExp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(-40, 0).Draw(t, "x")
		got, want := exp(x), math.Exp(x)
		if ulp := math.Nextafter(want, 2) - want; math.Abs(got-want) > 3*ulp {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	})
	// These bits must be the same on every machine; all but the last are the correctly rounded values, and
	// the last is one step below.
	for x, want := range map[float64]float64{0: 1, -1: 0.36787944117144233, -0.5: 0.6065306597126334, -10: 4.539992976248485e-05} {
		if got := exp(x); got != want {
			t.Errorf("exp(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	logits := []float32{1, 3, 3, 2, float32(math.Log(1e-30)), 9}
	for name, c := range map[string]struct {
		s     queue.Sampling
		allow []engine.Token
	}{
		"greedy, tie to the lower id": {queue.Sampling{}, []engine.Token{1}},
		"one of one":                  {queue.Sampling{Temperature: 5, TopK: 1}, []engine.Token{1}},
		"two best":                    {queue.Sampling{Temperature: 5, TopK: 2}, []engine.Token{1, 2}},
		"nucleus of one":              {queue.Sampling{Temperature: 1, TopP: 0.01}, []engine.Token{1}},
		"nucleus of two":              {queue.Sampling{Temperature: 1, TopP: 0.5}, []engine.Token{1, 2}},
		"cold":                        {queue.Sampling{Temperature: 0.001}, []engine.Token{1, 2}},
		"hot":                         {queue.Sampling{Temperature: 10}, []engine.Token{0, 1, 2, 3, 4}},
	} {
		s, err := newSampler(c.s, 5) // the last id has no token
		if err != nil {
			t.Fatal(err)
		}
		seen := map[engine.Token]bool{}
		for pos := range 400 {
			id := s.choose(engine.Pos(pos), logits)
			if again := s.choose(engine.Pos(pos), logits); again != id {
				t.Fatalf("%s: position %d gives %d and %d", name, pos, id, again)
			}
			seen[id] = true
		}
		for _, id := range c.allow {
			if !seen[id] && id != 4 {
				t.Errorf("%s: %d was never chosen", name, id)
			}
			delete(seen, id)
		}
		if len(seen) > 0 {
			t.Errorf("%s: chose %v as well", name, seen)
		}
	}
}

// The engine is left to choose only where it chooses alike: greedily, of the ids that have a token.
func TestChooserLeavesGreedyToTheEngine(t *testing.T) {
	for name, c := range map[string]struct {
		s    queue.Sampling
		ids  int
		left bool
	}{
		"greedy":                    {queue.Sampling{}, 5, true},
		"one of one":                {queue.Sampling{Temperature: 5, TopK: 1}, 5, true},
		"an id without a token":     {queue.Sampling{}, 6, false},
		"two best":                  {queue.Sampling{Temperature: 5, TopK: 2}, 5, false},
		"a nucleus, however narrow": {queue.Sampling{Temperature: 1, TopP: 0.01}, 5, false},
	} {
		s, err := newSampler(c.s, 5)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.chooser(c.ids) == nil; got != c.left {
			t.Errorf("%s: left to the engine: %v, want %v", name, got, c.left)
		}
	}
}

// The share of each id is its weight's.
func TestChooseShares(t *testing.T) {
	s, err := newSampler(queue.Sampling{Temperature: 2, Seed: 5}, 3)
	if err != nil {
		t.Fatal(err)
	}
	const n = 20000
	counts := make([]float64, 3)
	logits := []float32{0, 1, 2}
	for pos := range n {
		counts[s.choose(engine.Pos(pos), logits)]++
	}
	sum := 1 + math.Exp(0.5) + math.Exp(1)
	for id, c := range counts {
		want := math.Exp(float64(id)/2) / sum
		if got := c / n; math.Abs(got-want) > 0.015 {
			t.Errorf("id %d has the share %.3f, want %.3f", id, got, want)
		}
	}
}

func TestChooseSurvivesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32(), 1, 20).Draw(t, "logits")
		s, err := newSampler(queue.Sampling{
			Temperature: rapid.Float64Range(0, 1e6).Draw(t, "temperature"),
			TopK:        rapid.IntRange(0, 30).Draw(t, "k"),
			TopP:        rapid.Float64Range(0, 1).Draw(t, "p"),
			Seed:        rapid.Uint64().Draw(t, "seed"),
		}, 20)
		if err != nil {
			t.Fatal(err)
		}
		if id := s.choose(3, logits); id < 0 || int(id) >= len(logits) {
			t.Fatalf("chose %d of %d", id, len(logits))
		}
	})
}

// However the text is cut into pieces, what comes out before the first stop string is the same, as long as no
// two stop strings overlap.
func TestStopText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab<>]{0,20}`).Draw(t, "text")
		stop := rapid.SampledFrom([]string{"<>", "aab", "abab", "b", "<ab>"}).Draw(t, "stop")
		want, _, cut := strings.Cut(text, stop)
		s := stopText{stops: []string{stop}}
		var out strings.Builder
		stopped := false
		for rest := text; rest != "" && !stopped; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			var piece string
			piece, stopped = s.add(rest[:n])
			rest = rest[n:]
			out.WriteString(piece)
			if !strings.HasPrefix(want, out.String()) {
				t.Fatalf("told %q of %q", out.String(), want)
			}
		}
		out.WriteString(s.rest())
		if out.String() != want || stopped != cut {
			t.Fatalf("%q with stop %q gives %q (%v), want %q (%v)", text, stop, out.String(), stopped, want, cut)
		}
	})
}
