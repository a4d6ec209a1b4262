package cpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

type expertShape struct{ rows, h, inner, n, k, live int } // logits of experts from `live` on are low

// newExpertCase routes and runs experts of a 4-bit or bf16 form.
func newExpertCase(src source, s expertShape, quantised bool) (opCase, []ops.Expert, []float32) {
	x, logits := src.normal(s.rows*s.h, 1), src.normal(s.rows*s.n, 1)
	for i := range logits {
		if i%s.n >= s.live {
			logits[i] -= 100
		}
	}
	var records []ops.Expert
	var values [][3][]float64
	for range s.n {
		var ms [3]matrix
		for i, d := range [3][2]int{{s.inner, s.h}, {s.inner, s.h}, {s.h, s.inner}} {
			if ms[i] = plainMatrix(src, d[0], d[1], ops.BF16); quantised {
				ms[i] = affineMatrix(src, d[0], d[1], 4, 32, ops.BF16)
			}
		}
		records = append(records, ops.Expert{Gate: ms[0].Matrix, Up: ms[1].Matrix, Down: ms[2].Matrix})
		values = append(values, [3][]float64{ms[0].values, ms[1].values, ms[2].values})
	}
	var want []float64
	for r := range s.rows {
		y := make([]float64, s.h)
		experts, weights := refRoute(logits[r*s.n:(r+1)*s.n], s.k)
		for slot, e := range experts {
			for c, v := range refExpert(wide(x[r*s.h:(r+1)*s.h]), values[e], s.inner) {
				y[c] += weights[slot] * v
			}
		}
		want = append(want, y...)
	}
	experts := ops.Experts{N: s.n, Inner: s.inner, At: func(e int) ops.Expert { return records[e] }}
	return opCase{fmt.Sprint(s, quantised), s.rows, func(b *cpu.Backend, cuts []int) []float32 {
		in, l, out := put(b, x, s.h), put(b, logits, s.n), put(b, garbage(s.rows*s.h), s.h)
		chunks(cuts, func(from, to int) {
			b.RunExperts(out.Slice(from, to), in.Slice(from, to), experts, b.Route(l.Slice(from, to), s.k, true))
		})
		return out.Floats()
	}, want, 1e-5}, records, logits
}

func refRoute(logits []float32, k int) (experts []int, weights []float64) {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if logits[a] == logits[b] {
			return 0
		}
		if logits[a] > logits[b] {
			return -1
		}
		return 1
	})
	sum := 0.0
	for _, e := range order[:k] {
		w := math.Exp(float64(logits[e]))
		experts, weights, sum = append(experts, e), append(weights, w), sum+w
	}
	for i := range weights {
		weights[i] /= sum
	}
	return experts, weights
}

// refExpert is Down(silu(Gate x) * Up x).
func refExpert(x []float64, w [3][]float64, inner int) []float64 {
	times := func(m, x []float64, out int) []float64 {
		y := make([]float64, out)
		for o := range y {
			for i, v := range x {
				y[o] += m[o*len(x)+i] * v
			}
		}
		return y
	}
	gate, up := times(w[0], x, inner), times(w[1], x, inner)
	for i := range gate {
		gate[i] = refSiLU(gate[i]) * up[i]
	}
	return times(w[2], gate, len(x))
}

func TestRouteAndRunExperts(t *testing.T) {
	src := newSource(40)
	for _, s := range []expertShape{
		{1, 32, 32, 1, 1, 1}, {1, 64, 32, 8, 3, 8}, {7, 32, 64, 6, 2, 6}, {9, 64, 32, 16, 4, 5}, {5, 96, 32, 4, 4, 4},
	} {
		for _, quantised := range []bool{false, true} {
			c, _, _ := newExpertCase(src, s, quantised)
			check(t, c)
		}
	}
}

func TestRunExpertsCountsDistinctRecords(t *testing.T) {
	src, b := newSource(41), cpu.New(cpu.Options{})
	c := expertShape{rows: 1030, h: 4, inner: 3, n: 9, k: 2, live: 4} // more rows than one tile
	_, records, logits := newExpertCase(src, c, false)
	x, y := put(b, src.normal(c.rows*c.h, 1), c.h), put(b, make([]float32, c.rows*c.h), c.h)
	l := put(b, logits, c.n)
	run := func(from, to int) ops.Usage {
		return b.RunExperts(y.Slice(from, to), x.Slice(from, to),
			ops.Experts{N: c.n, Inner: c.inner, At: func(e int) ops.Expert { return records[e] }}, b.Route(l.Slice(from, to), c.k, true))
	}
	if got, want := run(0, c.rows), (ops.Usage{Records: 4, Bytes: 4 * int64(records[0].Bytes())}); got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
	whole := slices.Clone(y.Floats())
	run(0, 1)
	run(1, 700)
	run(700, c.rows)
	if i := differs(whole, y.Floats()); i >= 0 {
		t.Errorf("element %d depends on the cut", i)
	}
	if got := run(5, 6); got.Records != 2 {
		t.Errorf("one row with two slots read %d records", got.Records)
	}
	if got := run(5, 5); got != (ops.Usage{}) {
		t.Errorf("no rows read %+v", got)
	}
}

func TestRouteOrderTiesAndWeights(t *testing.T) {
	b := cpu.New(cpu.Options{})
	logits := put(b, []float32{1, 2, 2, 0, 2, 0, 0, 0, 0, 0}, 5)
	for _, c := range []struct {
		row, k  int
		experts []int32
	}{{0, 4, []int32{1, 2, 4, 0}}, {1, 3, []int32{0, 1, 2}}, {0, 5, []int32{1, 2, 4, 0, 3}}} {
		experts, weights := b.Route(logits, c.k, false).Row(c.row)
		if !slices.Equal(experts, c.experts) {
			t.Errorf("row %d: experts %v, want %v", c.row, experts, c.experts)
		}
		total := 0.0
		for _, v := range logits.Row(c.row) {
			total += math.Exp(float64(v))
		}
		for i, e := range experts {
			if want := math.Exp(float64(logits.Row(c.row)[e])) / total; math.Abs(float64(weights[i])-want) > 1e-7 {
				t.Errorf("row %d, expert %d: weight %g, want %g", c.row, e, weights[i], want)
			}
		}
		_, weights = b.Route(logits, c.k, true).Row(c.row)
		sum := 0.0
		for _, w := range weights {
			sum += float64(w)
		}
		if math.Abs(sum-1) > 1e-6 {
			t.Errorf("row %d: renormalised weights sum to %g", c.row, sum)
		}
	}
	nan := put(b, []float32{float32(math.NaN()), 1, 2}, 3)
	if experts, _ := b.Route(nan, 2, true).Row(0); slices.Min(experts) < 0 || slices.Max(experts) > 2 || experts[0] == experts[1] {
		t.Errorf("NaN logits chose %v, want two distinct experts", experts)
	}
}
