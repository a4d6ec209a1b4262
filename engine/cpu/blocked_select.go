package cpu

import (
	"math"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// selectRows is how many rows of queries meet panels of block keys: their scores of a long context still lie in the
	// second cache.
	selectRows = 16
	// selectBlocks is how many block keys they meet side by side: some panels.
	selectBlocks = 4 * fma.Lanes
)

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
	x.index[r] = s.chooser.choose(x.chosen[at:at:at+x.budget], row, x.budget)
}

// selectFew chooses for all of n rows, few of them: the block keys are cut over the workers.
func (b *Backend) selectFew(x *selection, n int) {
	l := b.lookbacks.take()
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
	each := (h.Dim + 16) * fma.Lanes
	panels := floats(&s.chains.panels, selectBlocks/fma.Lanes*each)
	products := fma.Rows{Data: floats(&s.chains.tile, n*h.N*selectBlocks), Step: selectBlocks}
	scale := float32(1 / math.Sqrt(float64(h.Dim)))
	for at := from; at < to; at += selectBlocks {
		have := min(selectBlocks, to-at)
		for j := 0; j < have; j += fma.Lanes {
			keys := fma.Rows{Data: x.keys.data[(at+j)*x.keys.stride:], Step: x.keys.stride}
			s.chains.set.Transpose(panels[j/fma.Lanes*each:], keys, min(fma.Lanes, have-j), h.Dim)
		}
		s.chains.set.Dots(products, q, panels, fma.Tile{Rows: n * h.N, Columns: (have + fma.Lanes - 1) / fma.Lanes * fma.Lanes, Inputs: h.Dim, Next: each, First: true})
		for i := range n {
			s.vector.sumPositives(all.scores[i*all.blocks+at:][:have], fma.Rows{Data: products.Data[i*h.N*selectBlocks:], Step: selectBlocks}, h.N, scale)
		}
	}
}
