package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// lookbackPairs is up to how many pairs of a row and a query head of one key head look back together: the scores are held
	// for all workers at once, and with so few pairs reading keys and values takes longer than the sums.
	lookbackPairs = 64
	// lookbackRows is up to how many rows that is done for: a token and its drafts.
	lookbackRows = 4
	// lookbackTokens is how many keys an item of work scores.
	lookbackTokens = 8 * fma.Lanes
	// lookbackColumns is how many columns of values an item sums.
	lookbackColumns = 64
)

// lookback is one tile of few rows for all key heads: its scores, then its sums, are cut over all workers. A tile whose
// rows see a selection has one row. How it is cut changes no chain.
type lookback struct {
	tile
	*Backend
	asked  attention // what the tile points to
	listed bool      // keys and values are read where they stand

	tokens []int32 // that the last row sees, and some more numbers
	scores []float32
	stride int // floats of a pair's scores
	pairs  int // of one key head
	cuts   int // items that score one head's keys
	sums   []float64
	phases [3]phase
}

// The phases of a lookback.
const (
	lookScores = iota
	lookWeights
	lookValues
)

// reset drops what the call referred to.
func (l *lookback) reset() { *l = lookback{tokens: l.tokens, scores: l.scores, sums: l.sums} }

// looksBack says that attention of n rows is cut by lookbacks.
func (b *Backend) looksBack(n int, d ops.AttentionDims) bool {
	return n <= lookbackRows && n*(d.Hq/d.Hkv) <= lookbackPairs
}

// sight is what rows see, the first of which stands at pos.
type sight struct {
	index      ops.Index
	pos, ratio int
}

// whole says that row r sees all tokens before it.
func (v *sight) whole(r int) bool { return len(v.index.Blocks(r)) == (v.pos+r+1)/v.ratio }

// attendFew attends with few rows.
func (b *Backend) attendFew(a *attention, v sight) {
	for r := 0; r < a.o.n; {
		l := b.lookbackOf(a, v, r)
		b.inPhases(l, l.phases[:]...)
		r = l.rows.to
		b.lookbacks.put(l)
	}
}

// lookbackOf prepares the lookback of row r and those behind it that go with it.
func (b *Backend) lookbackOf(a *attention, v sight, r int) *lookback {
	to := r + 1
	for to < a.o.n && v.whole(r) && v.whole(to) {
		to++
	}
	l := b.lookbacks.take()
	l.Backend, l.asked = b, *a
	l.tile = tile{attention: &l.asked, rows: span{r, to}, group: a.Hq / a.Hkv, pos: v.pos}
	l.see(v.index, v.ratio)
	l.pairs, l.stride = (to-r)*l.group, (l.most+fma.Lanes-1)/fma.Lanes*fma.Lanes
	all := l.pairs * l.Hkv
	l.scores, l.sums = floats(&l.scores, all*l.stride), fma.Grow(&l.sums, all)
	l.cuts = (l.most + lookbackTokens - 1) / lookbackTokens
	l.phases = [...]phase{{l.Hkv * l.cuts, 1}, {all, 1}, {l.Hkv * l.valueCuts(), 1}}
	return l
}

// see lists the visible tokens.
func (l *lookback) see(index ops.Index, ratio int) {
	last := l.rows.to - 1
	l.tokens = appendVisible(l.tokens[:0], index.Blocks(last), l.pos+last, ratio)
	l.most = len(l.tokens)
	l.all = l.most == l.pos+last+1
	for range fma.ListAhead {
		l.tokens = append(l.tokens, l.tokens[l.most-1])
	}
	l.listed = l.k.Format == ops.RowsF32 && l.Hd%(fma.Lanes/2) == 0 && l.chains.Lists()
}

func (l *lookback) do(s *scratch, phase, from, to int) {
	for i := from; i < to; i++ {
		switch phase {
		case lookScores:
			l.scoreKeys(s, i/l.cuts, i%l.cuts*lookbackTokens)
		case lookWeights:
			l.sums[i] = s.vector.softmaxLanes(l.scores[i*l.stride:][:l.tile.tokens(i%l.pairs/l.group)], l.scale)
		default:
			l.sumValues(s, i/l.valueCuts(), i%l.valueCuts())
		}
	}
}

func (l *lookback) name(phase int) string {
	return [...]string{"attention scores", "attention weights", "attention values"}[phase]
}

// valueCuts is how many items sum one head's values.
func (l *lookback) valueCuts() int {
	if !l.listed {
		return 1
	}
	return (l.Hd + lookbackColumns - 1) / lookbackColumns
}

// of is the tile for one key head, as a worker uses it.
func (l *lookback) of(s *scratch, kv int) tile {
	t := l.tile
	t.kv = kv
	if !l.listed && !l.all {
		s.tokens = append(s.tokens[:0], l.tokens[:l.most]...)
	}
	return t
}

// headScores are the scores of one key head.
func (l *lookback) headScores(kv int) fma.Rows {
	return fma.Rows{Data: l.scores[kv*l.pairs*l.stride:], Step: l.stride}
}

// scoreKeys scores the tokens from `first` on: a chain over the dimensions for each.
func (l *lookback) scoreKeys(s *scratch, kv, first int) {
	t, scores := l.of(s, kv), l.headScores(kv)
	q := t.queries(s)
	panel := floats(&s.chains.panels, (l.Hd+16)*fma.Lanes)
	for at := first; at < min(first+lookbackTokens, l.most); at += fma.Lanes {
		n := min(fma.Lanes, l.most-at)
		if l.listed {
			l.chains.TransposeListed(panel, l.rowsOf(&l.k, kv, 0, at), n, l.Hd)
		} else {
			l.chains.Transpose(panel, t.read(s, &l.k, at, n), n, l.Hd)
		}
		l.chains.Dots(fma.Rows{Data: scores.Data[at:], Step: scores.Step}, q, panel, fma.Tile{Rows: l.pairs, Columns: fma.Lanes, Inputs: l.Hd, First: true})
	}
}

// rowsOf are the columns from c on of one head of a cache, from visible token `at` on.
func (l *lookback) rowsOf(c *cachedRows, kv, from, at int) fma.Listed {
	return fma.Listed{Data: c.floats[kv*c.Dim+from:], Step: c.Heads * c.Dim, List: l.tokens[at:]}
}

// sumValues sums some columns of the values that each row sees, and finishes them.
func (l *lookback) sumValues(s *scratch, kv, cut int) {
	t, weights := l.of(s, kv), l.headScores(kv)
	sums := l.sums[kv*l.pairs : (kv+1)*l.pairs]
	if !l.listed {
		width := (l.Hd + fma.Lanes - 1) / fma.Lanes * fma.Lanes
		out := fma.Rows{Data: floats(&s.chains.packed, l.pairs*width), Step: width}
		t.sum(s, out, weights)
		t.finish(s, out, sums)
		return
	}
	c := headColumns{kv, cut * lookbackColumns, min(lookbackColumns, l.Hd-cut*lookbackColumns)}
	out := fma.Rows{Data: floats(&s.chains.packed, l.pairs*lookbackColumns), Step: lookbackColumns}
	rows := l.rows.to - l.rows.from
	l.addListed(out, weights, c, stretch{0, t.tokens(0), 0, rows})
	for r := 1; r < rows; r++ { // the tokens between two rows' ends, one a row
		l.addListed(out, weights, c, stretch{t.tokens(r - 1), t.tokens(r), r, rows})
	}
	t.finishColumns(s, out, sums, c)
}

// headColumns are n columns of a head, from column `from` on.
type headColumns struct{ kv, from, n int }

// addListed adds the weighted values of a stretch to out.
func (l *lookback) addListed(out, weights fma.Rows, c headColumns, w stretch) {
	first := w.first * l.group
	l.chains.DotsListed(fma.Rows{Data: out.Data[first*out.Step:], Step: out.Step},
		fma.Rows{Data: weights.Data[first*weights.Step+w.from:], Step: weights.Step}, l.rowsOf(&l.v, c.kv, c.from, w.from),
		fma.Tile{Rows: (w.last - w.first) * l.group, Columns: c.n, Inputs: w.to - w.from, First: w.from == 0})
}
