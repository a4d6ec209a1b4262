package cpu

import (
	"math"

	"lector/engine/ops"
)

// MeanBlocks: y[j] = mean of the ratio raw rows from (first+j)*ratio on: a float64 sum, divided, rounded once.
func (b *Backend) MeanBlocks(y, raw ops.Tensor, first, ratio int) {
	fit(y.Cols == raw.Cols && first >= 0 && ratio > 0 && (first+y.Rows)*ratio <= raw.Rows, "MeanBlocks", y, raw)
	out, in, di := y.Floats(), raw.Floats(), y.Cols
	b.parallel(y.Rows, grain(ratio*di), func(_ *scratch, from, to int) {
		for j := from; j < to; j++ {
			block := in[(first+j)*ratio*di:][:ratio*di]
			for c := range di {
				sum := 0.0
				for i := c; i < len(block); i += di {
					sum += float64(block[i])
				}
				out[j*di+c] = float32(sum / float64(ratio))
			}
		}
	})
}

// blockIndex lists the blocks of every row; rows that see all their blocks share one list.
type blockIndex [][]int32

// Blocks lists, ascending, the complete blocks visible to row r.
func (x blockIndex) Blocks(r int) []int32 { return x[r] }

// SelectBlocks chooses the min(budget, complete) best complete blocks of every row. A row that sees all of them is not
// scored, so bk is not read for it.
func (b *Backend) SelectBlocks(iq ops.Tensor, h ops.Heads, bk ops.Tensor, pos, ratio, budget int) ops.Index {
	fit(h.Within(iq) && pos >= 0 && ratio > 0 && budget >= 0, "SelectBlocks", iq, bk)
	last := (pos + iq.Rows) / ratio // complete blocks of the last row, the most of all
	every := make([]int32, min(budget, last))
	for j := range every {
		every[j] = int32(j)
	}
	index := make(blockIndex, iq.Rows)
	scored := iq.Rows // first row that is scored
	for r := range index {
		complete := (pos + r + 1) / ratio
		if complete > budget {
			scored = r
			break
		}
		index[r] = every[:complete]
	}
	if scored == iq.Rows {
		return index
	}
	fit(bk.Rows >= last && bk.Cols == h.Dim, "SelectBlocks", iq, bk)
	queries, keys := all(iq), all(bk)
	chosen := make([]int32, (iq.Rows-scored)*budget)
	if b.fused() {
		x := selection{queries, keys, h, pos, ratio, budget, index, chosen, scored}
		if iq.Rows-scored <= lookbackRows {
			b.selectFew(&x, iq.Rows-scored)
			return index
		}
		b.parallel((iq.Rows-scored+selectRows-1)/selectRows, grain(selectRows*last*h.N*h.Dim), func(s *scratch, from, to int) {
			for i := from; i < to; i++ {
				x.run(s, i*selectRows, min((i+1)*selectRows, iq.Rows-scored))
			}
		})
		return index
	}
	b.parallel(iq.Rows-scored, grain(last*h.N*h.Dim), func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			r := scored + i
			scores := floats(&s.values, (pos+r+1)/ratio)
			s.scoreBlocks(scores, queries.at(r), h, &keys)
			index[r] = s.chooser.choose(chosen[i*budget:i*budget:(i+1)*budget], scores, budget)
		}
	})
	return index
}

// scoreBlocks: scores[j] = sum over heads, ascending, of relu(query . key_j), times 1/sqrt(Dim).
func (s *scratch) scoreBlocks(scores, query []float32, h ops.Heads, keys *rows) {
	clear(scores)
	n := len(scores)
	s.tokens = s.tokens[:0]
	for j := range n {
		s.tokens = append(s.tokens, int32(j))
	}
	var queries [headsPerItem][]float32
	for first := 0; first < h.N; first += headsPerItem {
		heads := min(headsPerItem, h.N-first)
		for i := range heads {
			queries[i] = query[h.From+(first+i)*h.Stride:][:h.Dim]
		}
		products := floats(&s.more, heads*n)
		s.vector.score(products, queries[:heads], keys.data, s.tokens, keys.stride)
		for i := range heads {
			for j, c := range products[i*n : (i+1)*n] {
				scores[j] += max(c, 0)
			}
		}
	}
	scale := float32(1 / math.Sqrt(float64(h.Dim)))
	for j, v := range scores {
		scores[j] = v * scale
	}
}
