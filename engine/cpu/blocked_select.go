package cpu

import (
	"math"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// selectRows is how many rows of queries meet a panel of block keys.
const selectRows = 8

// selection is one call of SelectBlocks in the class cpu-f32-blocked.
type selection struct {
	queries, keys rows
	heads         ops.Heads
	pos, ratio    int
	budget        int
	index         blockIndex
	chosen        []int32 // [rows from scored on, budget]
	scored        int     // first row that is scored
}

// run scores rows [from, to) from scored on and chooses their blocks.
func (x *selection) run(s *scratch, from, to int) {
	n, blocks := to-from, (x.pos+x.scored+to)/x.ratio
	scores := floats(&s.values, n*blocks)
	x.score(s, scores, x.scored+from, n, blocks)
	for i := range n {
		r := x.scored + from + i
		row := scores[i*blocks:][:(x.pos+r+1)/x.ratio]
		at := (from + i) * x.budget
		x.index[r] = selectBest(x.chosen[at:at:at+x.budget], row, x.budget, &s.histogram)
	}
}

// score: scores[r, j] = sum over heads, ascending, of relu(query . key_j), times 1/sqrt(Dim).
func (x *selection) score(s *scratch, scores []float32, first, n, blocks int) {
	h := x.heads
	q := fma.Rows{Data: floats(&s.chains.packed, n*h.N*h.Dim), Step: h.Dim}
	for p := range n * h.N {
		copy(q.Data[p*h.Dim:(p+1)*h.Dim], x.queries.at(first + p/h.N)[h.From+p%h.N*h.Stride:])
	}
	panel, products := floats(&s.chains.panels, (h.Dim+16)*fma.Lanes), fma.Rows{Data: floats(&s.chains.tile, n*h.N*fma.Lanes), Step: fma.Lanes}
	scale := float32(1 / math.Sqrt(float64(h.Dim)))
	for at := 0; at < blocks; at += fma.Lanes {
		have := min(fma.Lanes, blocks-at)
		s.chains.set.Transpose(panel, fma.Rows{Data: x.keys.data[at*x.keys.stride:], Step: x.keys.stride}, have, h.Dim)
		s.chains.set.Dots(products, q, panel, fma.Tile{Rows: n * h.N, Columns: fma.Lanes, Inputs: h.Dim, First: true})
		for i := range n {
			row := scores[i*blocks+at:][:have]
			clear(row)
			for head := range h.N {
				s.vector.addPositive(row, products.Data[(i*h.N+head)*fma.Lanes:])
			}
			for j, v := range row {
				row[j] = v * scale
			}
		}
	}
}
