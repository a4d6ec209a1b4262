package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// listedPairs is up to how many pairs of a row and a query head, of rows that see selections, go through the context
	// together where keys and values are read where they stand: their scores are held.
	listedPairs = 1024
	// listedRows is how many rows that are at least, and listedSpread how many for every time that the context is as long as
	// what a row sees: at a large position each row sees other tokens, and the more rows there are, the less often a token is
	// brought from memory.
	listedRows   = 16
	listedSpread = 8
	// listedTokens is how far they go at a time: what one row brings near, the others find there.
	listedTokens = 512
	// listedUnit is of how many tokens a row takes multiples, as long as it has more to come: the kernels compute that many
	// side by side.
	listedUnit = fma.Lanes
)

// rowsListed is how many of n rows that see `seen` of all tokens attend together: there is an item for
// every worker, and some more.
func (b *Backend) rowsListed(n, seen, all int, d ops.AttentionDims) int {
	most := min(listedPairs/(d.Hq/d.Hkv), max(listedRows, listedSpread*all/max(1, seen)))
	return max(1, min(most, n*d.Hkv/(listedItems*b.workers)))
}

// listedItems is how many items a worker gets.
const listedItems = 4

// readsLists says that keys and values can be read where they stand.
func (t *tile) readsLists(s *scratch) bool { return t.canList(s.chains.set) }

func (a *attention) canList(set fma.Set) bool {
	return a.k.Format == ops.RowsF32 && a.v.Format == ops.RowsF32 && a.Hd%(fma.Lanes/2) == 0 && set.Lists()
}

// attendListed attends with rows that see selections: in the order of its list, each row has the chains that it has alone.
func (x *shared) attendListed(s *scratch) {
	most := 0
	for r, list := range x.lists {
		most = max(most, len(list))
		for range fma.ListAhead {
			x.lists[r] = append(x.lists[r], list[len(list)-1])
		}
	}
	pairs, stride := len(x.lists)*x.group, most+fma.Lanes // panels are written whole
	scores := fma.Rows{Data: floats(&s.values, pairs*stride), Step: stride}
	x.scoreListed(s, scores, x.queries(s))
	sums := fma.Grow(&s.sums, pairs)
	for p := range sums {
		sums[p] = s.vector.softmaxLanes(scores.Data[p*stride:][:x.count(p/x.group)], x.scale)
	}
	out := fma.Rows{Data: floats(&s.chains.packed, pairs*x.Hd), Step: x.Hd}
	x.stretches(s, func(r, from, to int) {
		pair := r * x.group
		s.chains.set.DotsListed(fma.Rows{Data: out.Data[pair*out.Step:], Step: out.Step},
			fma.Rows{Data: scores.Data[pair*stride+from:], Step: stride}, x.listed(&x.v, r, from),
			fma.Tile{Rows: x.group, Columns: x.Hd, Inputs: to - from, First: from == 0})
	})
	x.finish(s, out, sums)
}

// count is how many tokens row r sees.
func (x *shared) count(r int) int { return len(x.lists[r]) - fma.ListAhead }

// listed are the rows of one head of a cache that row r sees, from its token `at` on.
func (x *shared) listed(c *cachedRows, r, at int) fma.Listed {
	return fma.Listed{Data: c.floats[x.kv*c.Dim:], Step: c.Heads * c.Dim, List: x.lists[r][at:]}
}

// scoreListed sets scores [pairs, tokens that the row sees] to q . k, a chain over the dimensions.
func (x *shared) scoreListed(s *scratch, scores, q fma.Rows) {
	panel := floats(&s.chains.panels, (x.Hd+16)*fma.Lanes)
	x.stretches(s, func(r, from, to int) {
		pair := r * x.group
		own := fma.Rows{Data: q.Data[pair*q.Step:], Step: q.Step}
		for at := from; at < to; at += fma.Lanes {
			s.chains.set.TransposeListed(panel, x.listed(&x.k, r, at), min(fma.Lanes, to-at), x.Hd)
			s.chains.set.Dots(fma.Rows{Data: scores.Data[pair*scores.Step+at:], Step: scores.Step}, own, panel,
				fma.Tile{Rows: x.group, Columns: fma.Lanes, Inputs: x.Hd, First: true})
		}
	})
}

// stretches calls f with stretches [from, to) of what each row sees, such that all rows go through the context together.
func (x *shared) stretches(s *scratch, f func(r, from, to int)) {
	s.cursors = append(s.cursors[:0], make([]int, len(x.lists))...)
	last := x.pos + x.rows.to - 1
	for end := listedTokens; end-listedTokens <= last; end += listedTokens {
		for r := range x.lists {
			from, n := s.cursors[r], x.count(r)
			to := from
			for to < n && int(x.lists[r][to]) < end {
				to++
			}
			if to < n {
				to -= (to - from) % listedUnit
			}
			if to > from {
				f(r, from, to)
			}
			s.cursors[r] = to
		}
	}
}
