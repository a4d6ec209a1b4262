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
	all := blockScores{x.scored + from, to - from, (x.pos + x.scored + to) / x.ratio, nil}
	all.scores = floats(&s.values, all.n*all.blocks)
	x.score(s, &all, 0, all.blocks)
	for i := range all.n {
		x.choose(s, &all, i)
	}
}

// blockScores are the scores of n rows from row `first` on, [n, blocks].
type blockScores struct {
	first, n, blocks int
	scores           []float32
}

// choose chooses the blocks of row i of those that are scored.
func (x *selection) choose(s *scratch, all *blockScores, i int) {
	r := all.first + i
	row := all.scores[i*all.blocks:][:(x.pos+r+1)/x.ratio]
	at := (r - x.scored) * x.budget
	x.index[r] = selectBest(x.chosen[at:at:at+x.budget], row, x.budget, &s.histogram)
}

// selectFew chooses for all of n rows, few of them: the block keys are cut over the workers.
func (b *Backend) selectFew(x *selection, n int) {
	l := b.lookbacks.get()
	defer b.lookbacks.put(l)
	all := blockScores{x.scored, n, (x.pos + x.scored + n) / x.ratio, nil}
	l.scores = floats(&l.scores, n*all.blocks)
	all.scores = l.scores
	b.parallel((all.blocks+lookbackTokens-1)/lookbackTokens, 1, func(s *scratch, from, to int) {
		x.score(s, &all, from*lookbackTokens, min(to*lookbackTokens, all.blocks))
	})
	b.parallel(n, 1, func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			x.choose(s, &all, i)
		}
	})
}

// score scores blocks [from, to), where from is a multiple of a panel: scores[r, j] = sum over heads, ascending, of
// relu(query . key_j), times 1/sqrt(Dim).
func (x *selection) score(s *scratch, all *blockScores, from, to int) {
	h, n := x.heads, all.n
	q := fma.Rows{Data: floats(&s.chains.packed, n*h.N*h.Dim), Step: h.Dim}
	for p := range n * h.N {
		copy(q.Data[p*h.Dim:(p+1)*h.Dim], x.queries.at(all.first + p/h.N)[h.From+p%h.N*h.Stride:])
	}
	panel, products := floats(&s.chains.panels, (h.Dim+16)*fma.Lanes), fma.Rows{Data: floats(&s.chains.tile, n*h.N*fma.Lanes), Step: fma.Lanes}
	scale := float32(1 / math.Sqrt(float64(h.Dim)))
	for at := from; at < to; at += fma.Lanes {
		have := min(fma.Lanes, to-at)
		s.chains.set.Transpose(panel, fma.Rows{Data: x.keys.data[at*x.keys.stride:], Step: x.keys.stride}, have, h.Dim)
		s.chains.set.Dots(products, q, panel, fma.Tile{Rows: n * h.N, Columns: fma.Lanes, Inputs: h.Dim, First: true})
		for i := range n {
			row := all.scores[i*all.blocks+at:][:have]
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
