package gpu_test

import (
	"math"
	"slices"
	"testing"

	"lector/engine/gpu"
	"lector/engine/ops"
)

// choice is what one call of Route or SelectBlocks chose, and from what.
type choice struct {
	pass    int // over some rows: the trunk's over a chunk, or the draft head's
	k       int
	experts []int32
	blocks  [][]int32
	scores  [][]float32 // by row: probability of an expert, or score of a block; nil where nothing was left out
}

// recorder notes every choice of a backend.
type recorder struct {
	ops.Backend
	t       *testing.T
	choices []choice
	pass    int
}

// Embed begins every pass.
func (r *recorder) Embed(y ops.Tensor, w ops.Matrix, ids []int32) {
	r.pass++
	r.Backend.Embed(y, w, ids)
}

func (r *recorder) Route(logits ops.Tensor, k int, renorm bool) ops.Route {
	route := r.Backend.Route(logits, k, renorm)
	wait(r.t, r.Backend)
	c := choice{pass: r.pass, k: k}
	for row := range logits.Rows {
		experts, _ := route.Row(row)
		c.experts = append(c.experts, experts...)
		every := make([]int32, logits.Cols)
		for e := range every {
			every[e] = int32(e)
		}
		scores := make([]float32, logits.Cols)
		softmaxOf(scores, logits.Row(row), every, false)
		c.scores = append(c.scores, scores)
	}
	r.choices = append(r.choices, c)
	return route
}

func (r *recorder) SelectBlocks(iq ops.Tensor, h ops.Heads, bk ops.Tensor, pos, ratio, budget int) ops.Index {
	index := r.Backend.SelectBlocks(iq, h, bk, pos, ratio, budget)
	wait(r.t, r.Backend)
	c := choice{pass: r.pass}
	for row := range iq.Rows {
		c.blocks = append(c.blocks, slices.Clone(index.Blocks(row)))
		var scores []float32
		if complete := (pos + row + 1) / ratio; complete > budget {
			scores = scoresOf(iq.Row(row), h, bk.Slice(0, complete))
		}
		c.scores = append(c.scores, scores)
	}
	r.choices = append(r.choices, c)
	return index
}

// scoresOf is a row's scores of the blocks of bk.
func scoresOf(iq []float32, h ops.Heads, bk ops.Tensor) []float32 {
	scores := make([]float32, bk.Rows)
	for j := range scores {
		for head := range h.N {
			dot := 0.0
			for c, v := range bk.Row(j) {
				dot += float64(v) * float64(iq[h.From+head*h.Stride+c])
			}
			scores[j] += float32(max(dot, 0) / math.Sqrt(float64(h.Dim)))
		}
	}
	return scores
}

// differences counts the choices in which two runs differ. margin is the largest by which the first run preferred what
// the second left out to what it took, of probability or relative to the best score, among the differences that follow
// from no other: a row that chose otherwise changes the state that it and all rows after it see in later layers.
func differences(t *testing.T, a, b []choice) (flips int, margin float64) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d choices against %d", len(b), len(a))
	}
	clean := math.MaxInt // rows of the pass that no difference has reached
	for i := range a {
		if i > 0 && flips > 0 && a[i].pass != a[i-1].pass {
			clean = 0
		}
		first := clean
		for r, scores := range a[i].scores {
			n, by := missing(a[i].row(r), b[i].row(r), scores)
			if n == 0 {
				continue
			}
			if a[i].k == 0 {
				by /= float64(slices.Max(scores))
			}
			if r < clean {
				margin = max(margin, by)
			}
			flips, first = flips+n, min(first, r)
		}
		clean = first
	}
	return flips, margin
}

// row is what row r chose.
func (c *choice) row(r int) []int32 {
	if c.k > 0 {
		return c.experts[r*c.k : (r+1)*c.k]
	}
	return c.blocks[r]
}

// missing counts what of x is not in y, and says by how much the best of it beats the least of what y has instead.
func missing(x, y []int32, scores []float32) (n int, by float64) {
	out, in := math.Inf(-1), math.Inf(1)
	for _, i := range x {
		if !slices.Contains(y, i) {
			n++
			out = max(out, float64(scores[i]))
		}
	}
	for _, i := range y {
		if !slices.Contains(x, i) {
			in = min(in, float64(scores[i]))
		}
	}
	return n, out - in
}

// forced is a device that is held to recorded choices; the weights of forced experts are its own.
type forced struct {
	*gpu.Backend
	t       *testing.T
	choices []choice
}

func (f *forced) next() choice {
	c := f.choices[0]
	f.choices = f.choices[1:]
	return c
}

func (f *forced) Route(logits ops.Tensor, k int, renorm bool) ops.Route {
	wait(f.t, f.Backend)
	c := f.next()
	if c.k != k || len(c.experts) != logits.Rows*k {
		f.t.Fatalf("%d experts a row for %d rows: not what was recorded", k, logits.Rows)
	}
	weights := make([]float32, len(c.experts))
	for r := range logits.Rows {
		softmaxOf(weights[r*k:(r+1)*k], logits.Row(r), c.experts[r*k:], renorm)
	}
	return f.ForceRoute(c.experts, weights, k)
}

// softmaxOf sets weights to the probabilities of the chosen experts.
func softmaxOf(weights, logits []float32, experts []int32, renorm bool) {
	top := slices.Max(logits)
	all, chosen := 0.0, 0.0
	for _, v := range logits {
		all += math.Exp(float64(v - top))
	}
	for i := range weights {
		p := math.Exp(float64(logits[experts[i]]-top)) / all
		weights[i] = float32(p)
		chosen += p
	}
	for i := range weights {
		if renorm {
			weights[i] = float32(float64(weights[i]) / chosen)
		}
	}
}

func (f *forced) SelectBlocks(iq ops.Tensor, h ops.Heads, bk ops.Tensor, pos, ratio, budget int) ops.Index {
	return f.ForceBlocks(f.next().blocks, pos, ratio, budget)
}
