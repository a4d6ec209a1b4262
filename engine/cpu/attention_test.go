package cpu_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
	"pgregory.net/rapid"
)

type attentionShape struct {
	ops.AttentionDims
	pos, rows, ratio, budget, hi, di int
}

// newAttentionCase selects blocks and attends; the reference selects by itself.
func newAttentionCase(src source, s attentionShape) opCase {
	total := s.pos + s.rows
	nb := total / s.ratio
	qg, k, v := src.normal(s.rows*2*s.Hq*s.Hd, 1), src.normal(total*s.Hkv*s.Hd, 1), src.normal(total*s.Hkv*s.Hd, 1)
	iq, bk := src.normal(s.rows*(s.hi*s.di+3), 1), src.normal((nb+1)*s.di, 1)
	heads := ops.Heads{From: 3, N: s.hi, Stride: s.di, Dim: s.di}
	return opCase{fmt.Sprint(s), s.rows, func(b *cpu.Backend, cuts []int) []float32 {
		o := put(b, garbage(s.rows*s.Hq*s.Hd), s.Hq*s.Hd)
		q, ks, vs, is, bs := put(b, qg, 2*s.Hq*s.Hd), put(b, k, s.Hkv*s.Hd), put(b, v, s.Hkv*s.Hd), put(b, iq, s.hi*s.di+3), put(b, bk, s.di)
		chunks(cuts, func(from, to int) {
			index := b.SelectBlocks(is.Slice(from, to), heads, bs, s.pos+from, s.ratio, s.budget)
			b.Attend(o.Slice(from, to), q.Slice(from, to), ops.CacheOf(ks, s.Hkv), ops.CacheOf(vs, s.Hkv), index, s.pos+from, s.ratio, s.AttentionDims)
		})
		return o.Floats()
	}, refAttention(s, qg, k, v, iq, bk), 4e-6}
}

func refAttention(s attentionShape, qg, k, v, iq, bk []float32) []float64 {
	o := make([]float64, s.rows*s.Hq*s.Hd)
	for r := range s.rows {
		p := s.pos + r
		visible := refVisible(s, iq[r*(s.hi*s.di+3)+3:], bk, p)
		for h := range s.Hq {
			kv := h / (s.Hq / s.Hkv)
			q := qg[(r*s.Hq+h)*2*s.Hd:]
			out, sum := o[(r*s.Hq+h)*s.Hd:][:s.Hd], 0.0
			for _, t := range visible {
				dot := 0.0
				for c := range s.Hd {
					dot += float64(q[c]) * float64(k[(t*s.Hkv+kv)*s.Hd+c])
				}
				e := math.Exp(dot / math.Sqrt(float64(s.Hd)))
				sum += e
				for c := range out {
					out[c] += e * float64(v[(t*s.Hkv+kv)*s.Hd+c])
				}
			}
			for c := range out {
				out[c] *= refSigmoid(float64(q[s.Hd+c])) / sum
			}
		}
	}
	return o
}

func refVisible(s attentionShape, iq, bk []float32, p int) (tokens []int) {
	complete := (p + 1) / s.ratio
	scores := make([]float64, complete)
	for j := range scores {
		for h := range s.hi {
			dot := 0.0
			for c := range s.di {
				dot += float64(iq[h*s.di+c]) * float64(bk[j*s.di+c])
			}
			scores[j] += max(dot, 0) / math.Sqrt(float64(s.di))
		}
	}
	for _, j := range refBest(scores, min(s.budget, complete)) {
		for t := range s.ratio {
			tokens = append(tokens, j*s.ratio+t)
		}
	}
	for t := complete * s.ratio; t <= p; t++ {
		tokens = append(tokens, t)
	}
	return tokens
}

// refBest is the k highest, the lower index first where they are equal, ascending.
func refBest[T cmp.Ordered](scores []T, k int) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	order = order[:k]
	slices.Sort(order)
	return order
}

func TestSelectAndAttend(t *testing.T) {
	src := newSource(30)
	dims := func(hq, hkv, hd int) ops.AttentionDims { return ops.AttentionDims{Hq: hq, Hkv: hkv, Hd: hd} }
	for _, s := range []attentionShape{
		{dims(1, 1, 1), 0, 1, 4, 2, 1, 1},
		{dims(1, 1, 3), 0, 3, 4, 0, 1, 3},    // nothing but the tail
		{dims(2, 1, 64), 0, 17, 4, 2, 4, 16}, // passes the budget midway
		{dims(4, 2, 64), 30, 9, 4, 3, 3, 64},
		{dims(10, 2, 16), 61, 5, 4, 100, 4, 8}, // 5 heads a key head; all visible
		{dims(12, 1, 32), 13, 7, 3, 2, 5, 12},
		{dims(3, 3, 128), 40, 3, 1, 7, 2, 128},
		{dims(6, 2, 256), 50, 2, 4, 12, 4, 128},   // complete == budget, then one more
		{dims(8, 2, 80), 700, 5, 4, 90, 4, 16},    // keys, values and block keys in several parts
		{dims(12, 1, 128), 598, 4, 4, 150, 3, 16}, // passes the budget within few rows
	} {
		check(t, newAttentionCase(src, s))
	}
}

func TestAttendWithLargeScoresStaysFinite(t *testing.T) {
	b, src := cpu.New(cpu.Options{}), newSource(31)
	d := ops.AttentionDims{Hq: 1, Hkv: 1, Hd: 4}
	qg, k, v, o := put(b, src.normal(8, 300), 8), put(b, src.normal(40, 300), 4), put(b, src.normal(40, 1), 4), put(b, make([]float32, 4), 4)
	b.Attend(o, qg, ops.CacheOf(k, 1), ops.CacheOf(v, 1), b.SelectBlocks(qg, ops.Heads{N: 1, Stride: 4, Dim: 4}, ops.Tensor{}, 9, 4, 100), 9, 4, d)
	for _, x := range o.Floats() {
		if x != x || math.IsInf(float64(x), 0) {
			t.Fatalf("got %v", o.Floats())
		}
	}
}

func TestSelectBlocksListsAndBreaksTies(t *testing.T) {
	b := cpu.New(cpu.Options{Workers: 2})
	bk := put(b, []float32{1, 3, 2, 3, -5, 3, 2}, 1) // scores 1 3 2 3 0 3 2
	iq := put(b, []float32{1, 1, 1, 1}, 1)
	index := b.SelectBlocks(iq, ops.Heads{N: 1, Stride: 1, Dim: 1}, bk, 3, 1, 4) // 4, 5, 6, 7 complete
	for r, want := range [][]int32{{0, 1, 2, 3}, {0, 1, 2, 3}, {1, 2, 3, 5}, {1, 2, 3, 5}} {
		if got := index.Blocks(r); !slices.Equal(got, want) {
			t.Errorf("row %d: blocks %v, want %v", r, got, want)
		}
	}
	zero := b.SelectBlocks(put(b, []float32{0}, 1), ops.Heads{N: 1, Stride: 1, Dim: 1}, bk, 6, 1, 3)
	if got := zero.Blocks(0); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("all scores equal: blocks %v, want the first three", got)
	}
}

// Selection is a sort by (score descending, index ascending) whatever the scores.
func TestSelectBestIsASort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		level := rapid.SampledFrom([]int{1, 2, 5, 1 << 30}).Draw(t, "levels")
		scores := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float32 {
			return float32(rapid.IntRange(0, level).Draw(t, "n")) * 0.37
		}), 1, 300).Draw(t, "scores")
		k := rapid.IntRange(0, len(scores)-1).Draw(t, "k")
		var want []int32
		for _, j := range refBest(scores, k) {
			want = append(want, int32(j))
		}
		if got := cpu.SelectBest(scores, k); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// A sample narrows many scores before they are ranked: also one that says too much or too little.
func TestSelectBestOfMany(t *testing.T) {
	src := newSource(33)
	for name, score := range map[string]func(i int) float32{
		"random":             func(int) float32 { return src.Float32() },
		"few levels":         func(int) float32 { return float32(src.IntN(3)) },
		"all equal":          func(int) float32 { return 1 },
		"rising":             func(i int) float32 { return float32(i) },
		"only the sample":    func(i int) float32 { return float32(i%16/8*(1-i%8)) + src.Float32() },
		"all but the sample": func(i int) float32 { return src.Float32() - float32(i%16/8*(1-i%8))/2 },
	} {
		for _, k := range []int{127, 128, 200, 512} {
			scores := make([]float32, 4*k+src.IntN(3000))
			for i := range scores {
				scores[i] = max(0, score(i))
			}
			var want []int32
			for _, j := range refBest(scores, k) {
				want = append(want, int32(j))
			}
			if got := cpu.SelectBest(scores, k); !slices.Equal(got, want) {
				t.Errorf("%s: the %d best of %d differ from those of a sort", name, k, len(scores))
			}
		}
	}
}

func TestMeanBlocks(t *testing.T) {
	src := newSource(32)
	const di, ratio, first = 5, 4, 2
	raw := src.normal(23*di, 1)
	var want []float64
	for j := first; j < 5; j++ {
		for c := range di {
			sum := 0.0
			for i := range ratio {
				sum += float64(raw[(j*ratio+i)*di+c]) / ratio
			}
			want = append(want, sum)
		}
	}
	check(t, opCase{"mean", 3, func(b *cpu.Backend, cuts []int) []float32 {
		y, in := put(b, make([]float32, 3*di), di), put(b, raw, di)
		chunks(cuts, func(from, to int) { b.MeanBlocks(y.Slice(from, to), in, first+from, ratio) })
		return y.Floats()
	}, want, 1e-6})
}
