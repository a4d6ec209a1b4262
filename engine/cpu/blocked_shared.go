package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// sharedRows is how many rows that see selections share the reading of keys and values.
	sharedRows = 8
	// sharedMost is how many times the tokens of one row those of all may be, for that to be worth it.
	sharedMost = 3
)

// shared are some rows that see selections. What any of them sees is read once, and every row takes its own out of it
// while it is near: the chains of a row are those that it has alone.
type shared struct {
	tile
	lists [][]int32 // tokens that each row sees
	union []int32   // tokens that any row sees
}

// runShared attends with a tile of rows that see selections.
func (t tile) runShared(s *scratch, index ops.Index, ratio int) {
	x := shared{tile: t, lists: t.visible(s, index, ratio)}
	if t.readsLists(s) {
		x.attendListed(s)
		return
	}
	n := len(x.lists)
	x.join(s)
	x.most = len(x.lists[n-1])
	if n == 1 || len(x.union) > sharedMost*x.most {
		for r := range n {
			one := t
			one.rows = span{t.rows.from + r, t.rows.from + r + 1}
			s.tokens = append(s.tokens[:0], x.lists[r]...)
			one.most = len(s.tokens)
			one.run(s)
		}
		return
	}
	s.tokens = append(s.tokens[:0], x.union...)
	x.attend(s)
}

// visible lists the tokens that each row of a tile sees.
func (t *tile) visible(s *scratch, index ops.Index, ratio int) [][]int32 {
	n := t.rows.to - t.rows.from
	for len(s.lists) < n {
		s.lists = append(s.lists, nil)
	}
	for r := range n {
		row := t.rows.from + r
		s.lists[r] = appendVisible(s.lists[r][:0], index.Blocks(row), t.pos+row, ratio)
	}
	return s.lists[:n]
}

// join sets union: all lists are ascending.
func (x *shared) join(s *scratch) {
	x.union = s.union[:0]
	at := make([]int, len(x.lists))
	for {
		least := int32(-1)
		for r, list := range x.lists {
			if at[r] < len(list) && (least < 0 || list[at[r]] < least) {
				least = list[at[r]]
			}
		}
		if least < 0 {
			break
		}
		for r, list := range x.lists {
			if at[r] < len(list) && list[at[r]] == least {
				at[r]++
			}
		}
		x.union = append(x.union, least)
	}
	s.union = x.union
}

func (x *shared) attend(s *scratch) {
	pairs, stride := len(x.lists)*x.group, 0
	for _, list := range x.lists {
		stride = max(stride, len(list))
	}
	scores := fma.Rows{Data: floats(&s.values, pairs*stride), Step: stride}
	x.score(s, scores, x.queries(s))
	sums := fma.Grow(&s.sums, pairs)
	for p := range sums {
		sums[p] = s.vector.softmaxLanes(scores.Data[p*stride:][:len(x.lists[p/x.group])], x.scale)
	}
	width := (x.Hd + fma.Lanes - 1) / fma.Lanes * fma.Lanes
	out := fma.Rows{Data: floats(&s.chains.packed, pairs*width), Step: width}
	x.sum(s, out, scores)
	x.finish(s, out, sums)
}

// near is n rows of one head of a cache from token u of the union on: where they stand, if they stand side by side.
func (x *shared) near(s *scratch, c *cachedRows, u, n int) fma.Rows {
	first := int(x.union[u])
	if c.Format == ops.RowsF32 && int(x.union[u+n-1])-first == n-1 {
		stride := c.Heads * c.Dim
		return fma.Rows{Data: c.floats[first*stride+x.kv*c.Dim:], Step: stride}
	}
	return x.read(s, c, u, n)
}

// score scores all rows with what any sees, and keeps of each what is its own.
func (x *shared) score(s *scratch, scores, q fma.Rows) {
	pairs := len(x.lists) * x.group
	panel := floats(&s.chains.panels, (x.Hd+16)*fma.Lanes)
	products := fma.Rows{Data: floats(&s.chains.tile, pairs*fma.Lanes), Step: fma.Lanes}
	at := make([]int, len(x.lists))
	for u := 0; u < len(x.union); u += fma.Lanes {
		n := min(fma.Lanes, len(x.union)-u)
		s.chains.set.Transpose(panel, x.near(s, &x.k, u, n), n, x.Hd)
		s.chains.set.Dots(products, q, panel, fma.Tile{Rows: pairs, Columns: fma.Lanes, Inputs: x.Hd, First: true})
		for r, list := range x.lists {
			for j, token := range x.union[u : u+n] {
				if at[r] == len(list) || list[at[r]] != token {
					continue
				}
				for h := range x.group {
					scores.Data[(r*x.group+h)*scores.Step+at[r]] = products.Data[(r*x.group+h)*fma.Lanes+j]
				}
				at[r]++
			}
		}
	}
}

// sum adds up the values, some tokens at a time.
func (x *shared) sum(s *scratch, out, weights fma.Rows) {
	own := fma.Rows{Data: floats(&s.chains.tile, valueRows*x.Hd), Step: x.Hd}
	at := make([]int, len(x.lists))
	for u := 0; u < len(x.union); u += valueRows {
		width := min(valueRows, len(x.union)-u)
		near := x.near(s, &x.v, u, width)
		for r, list := range x.lists {
			n := 0
			for j, token := range x.union[u : u+width] {
				if at[r]+n < len(list) && list[at[r]+n] == token {
					copy(own.Data[n*x.Hd:(n+1)*x.Hd], near.Data[j*near.Step:])
					n++
				}
			}
			first := r * x.group
			x.addValues(s, fma.Rows{Data: out.Data[first*out.Step:], Step: out.Step}, fma.Rows{Data: weights.Data[first*weights.Step+at[r]:], Step: weights.Step}, own,
				fma.Tile{Rows: x.group, Inputs: n, First: at[r] == 0})
			at[r] += n
		}
	}
}
