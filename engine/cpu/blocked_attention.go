package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// tilePairs is about how many pairs of a row and a query head share the reading of keys and values.
	tilePairs = 64
	// valueRows is how many rows of values lie in the nearest cache at a time.
	valueRows = 64
)

// attendTiles attends in the class cpu-f32-blocked. A tile is some rows that see all tokens before them, or one row
// that sees a selection, and the query heads of one key head.
func (b *Backend) attendTiles(a *attention, index ops.Index, pos, ratio int) {
	group := a.Hq / a.Hkv
	if b.looksBack(a.o.n, a.AttentionDims) {
		b.attendFew(a, sight{index, pos, ratio})
		return
	}
	most := tileRows{whole: max(1, tilePairs/group), selecting: sharedRows}
	if a.canList(b.chains) {
		most.selecting = b.rowsListed(a.o.n, ratio*len(index.Blocks(a.o.n-1)), pos+a.o.n, a.AttentionDims)
	}
	tiles := attentionTiles(index, a.o.n, pos, ratio, most)
	b.parallel(len(tiles)*a.Hkv, 1, func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			t := tile{attention: a, rows: tiles[i/a.Hkv], group: group, kv: i % a.Hkv, pos: pos}
			if t.sees(index, ratio) {
				t.run(s)
			} else {
				t.runShared(s, index, ratio)
			}
		}
	})
}

// span is rows [from, to) of a chunk.
type span struct{ from, to int }

// tileRows are the most rows of a tile, which see all tokens before them or selections.
type tileRows struct{ whole, selecting int }

// attentionTiles cuts n rows into tiles of rows of one kind.
func attentionTiles(index ops.Index, n, pos, ratio int, rows tileRows) []span {
	whole := func(r int) bool { return len(index.Blocks(r)) == (pos+r+1)/ratio }
	var tiles []span
	for r := 0; r < n; {
		to, all, most := r+1, whole(r), rows.whole
		if !all {
			most = rows.selecting
		}
		for to < n && to-r < most && whole(to) == all {
			to++
		}
		tiles = append(tiles, span{r, to})
		r = to
	}
	return tiles
}

// tile is one tile's work: group query heads of key head kv for its rows. A pair is a row and one of those heads.
type tile struct {
	*attention
	rows  span
	group int
	kv    int
	pos   int // of row 0 of the chunk
	all   bool
	most  int // tokens that the last row sees
}

// sees says whether the rows see all tokens before them, and how many.
func (t *tile) sees(index ops.Index, ratio int) bool {
	last := t.pos + t.rows.to - 1
	t.all, t.most = len(index.Blocks(t.rows.to-1)) == (last+1)/ratio, last+1
	return t.all
}

// tokens is how many tokens row r of the tile sees.
func (t *tile) tokens(r int) int { return t.most - (t.rows.to - t.rows.from - 1 - r) }

func (t *tile) run(s *scratch) {
	n := t.rows.to - t.rows.from
	pairs, stride := n*t.group, (t.most+fma.Lanes-1)/fma.Lanes*fma.Lanes
	scores := fma.Rows{Data: floats(&s.values, pairs*stride), Step: stride}
	t.score(s, scores, t.queries(s))
	sums := fma.Grow(&s.sums, pairs)
	for p := range sums {
		sums[p] = s.vector.softmaxLanes(scores.Data[p*stride:][:t.tokens(p/t.group)], t.scale)
	}
	width := (t.Hd + fma.Lanes - 1) / fma.Lanes * fma.Lanes
	out := fma.Rows{Data: floats(&s.chains.packed, pairs*width), Step: width}
	t.sum(s, out, scores)
	t.finish(s, out, sums)
}

// finish divides by the sums and applies the gates.
func (t *tile) finish(s *scratch, out fma.Rows, sums []float64) {
	t.finishColumns(s, out, sums, headColumns{t.kv, 0, t.Hd})
}

// finishColumns is finish for some columns, which are those of out.
func (t *tile) finishColumns(s *scratch, out fma.Rows, sums []float64, c headColumns) {
	gates := floats(&s.more, c.n)
	for p, sum := range sums {
		r, head := t.rows.from+p/t.group, c.kv*t.group+p%t.group
		copy(gates, t.qg.at(r)[(2*head+1)*t.Hd+c.from:])
		s.vector.sigmoid(gates, 1, 1)
		inverse, y, values := float32(1/sum), t.o.at(r)[head*t.Hd+c.from:][:c.n], out.Data[p*out.Step:]
		for i, g := range gates {
			y[i] = float32(values[i]*inverse) * g
		}
	}
}

// queries are those of all pairs, close together.
func (t *tile) queries(s *scratch) fma.Rows {
	n := (t.rows.to - t.rows.from) * t.group
	if n == t.group { // they stand at equal distances
		return fma.Rows{Data: t.qg.at(t.rows.from)[2*t.kv*t.group*t.Hd:], Step: 2 * t.Hd}
	}
	q := fma.Rows{Data: floats(&s.chains.packed, n*t.Hd), Step: t.Hd}
	for p := range n {
		head := t.kv*t.group + p%t.group
		copy(q.Data[p*t.Hd:(p+1)*t.Hd], t.qg.at(t.rows.from + p/t.group)[2*head*t.Hd:])
	}
	return q
}

// score sets scores [pairs, tokens] to q . k, a chain over the dimensions. What a row does not see is scored with the
// others and left alone.
func (t *tile) score(s *scratch, scores, q fma.Rows) {
	panel := floats(&s.chains.panels, (t.Hd+16)*fma.Lanes)
	pairs := (t.rows.to - t.rows.from) * t.group
	for at := 0; at < t.most; at += fma.Lanes {
		n := min(fma.Lanes, t.most-at)
		s.chains.set.Transpose(panel, t.read(s, &t.k, at, n), n, t.Hd)
		s.chains.set.Dots(fma.Rows{Data: scores.Data[at:], Step: scores.Step}, q, panel,
			fma.Tile{Rows: pairs, Columns: fma.Lanes, Inputs: t.Hd, First: true})
	}
}

// read is n rows of one head of a cache from visible token `at` on, as floats.
func (t *tile) read(s *scratch, c *cachedRows, at, n int) fma.Rows {
	if t.all && c.Format == ops.RowsF32 {
		stride := c.Heads * c.Dim
		return fma.Rows{Data: c.floats[at*stride+t.kv*c.Dim:], Step: stride}
	}
	rows := fma.Rows{Data: floats(&s.panel, max(fma.Lanes, valueRows)*c.Dim), Step: c.Dim}
	for i := range n {
		token := at + i
		if !t.all {
			token = int(s.tokens[token])
		}
		if row := rows.Data[i*c.Dim : (i+1)*c.Dim]; c.Format == ops.RowsF32 {
			copy(row, c.floats[(token*c.Heads+t.kv)*c.Dim:])
		} else {
			c.head(s.vector, row, token, t.kv)
		}
	}
	return rows
}

// sum sets out [pairs, Hd] to the sum of the values that each pair's row sees, times their weights: a chain over the
// tokens. All pairs take the tokens that the first row sees together; those that follow are for the rows that see them.
func (t *tile) sum(s *scratch, out, weights fma.Rows) {
	n := t.rows.to - t.rows.from
	for at := 0; at < t.tokens(0); at += valueRows {
		t.add(s, out, weights, stretch{at, min(at+valueRows, t.tokens(0)), 0, n})
	}
	for r := 1; r < n; r++ { // the tokens between two rows' ends, one a row
		t.add(s, out, weights, stretch{t.tokens(r - 1), t.tokens(r), r, n})
	}
}

// stretch is tokens [from, to) of what rows [first, last) of a tile see.
type stretch struct{ from, to, first, last int }

func (t *tile) add(s *scratch, out, weights fma.Rows, w stretch) {
	n := w.to - w.from
	rows := t.read(s, &t.v, w.from, n)
	first := w.first * t.group
	t.addValues(s, fma.Rows{Data: out.Data[first*out.Step:], Step: out.Step}, fma.Rows{Data: weights.Data[first*weights.Step+w.from:], Step: weights.Step}, rows,
		fma.Tile{Rows: (w.last - w.first) * t.group, Inputs: n, First: w.from == 0})
}

// addValues adds weighted rows of values to out. Whole panels of columns are taken from where the rows stand.
func (t *tile) addValues(s *scratch, out, weights, values fma.Rows, tile fma.Tile) {
	tile.Columns, tile.Next, tile.Step = t.Hd/fma.Lanes*fma.Lanes, fma.Lanes, values.Step
	s.chains.set.Dots(out, weights, values.Data, tile)
	done := tile.Columns
	if done == t.Hd {
		return
	}
	ragged := floats(&s.chains.panels, valueRows*fma.Lanes)
	for i := range tile.Inputs {
		copy(ragged[i*fma.Lanes:][:t.Hd-done], values.Data[i*values.Step+done:])
	}
	tile.Columns, tile.Next, tile.Step = fma.Lanes, 0, fma.Lanes
	s.chains.set.Dots(fma.Rows{Data: out.Data[done:], Step: out.Step}, weights, ragged, tile)
}
