package gpu

import (
	"fmt"
	"math"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	meanBlocks   kernel[shaders.MeanBlocksParams]   = "qsa_mean_blocks"
	scoreBlocks  kernel[shaders.ScoreBlocksParams]  = "qsa_score_blocks"
	selectBlocks kernel[shaders.SelectBlocksParams] = "qsa_select_blocks"
	scoreFew     kernel[shaders.ScoreBlocksParams]  = "qsa_score_few"
	attendJoin   kernel[shaders.AttendParams]       = "qsa_attend_join"
)

const (
	// denseTokens is how many tokens of context are attended to in the dense form, with what a row does not see
	// masked; rows that stand further back gather the blocks they see. The form goes by a row's position alone, so
	// that a cut of the chunk changes nothing. It is a constant of the class.
	denseTokens = 8192
	// scoreBytes bounds the scores held at once.
	scoreBytes = 32 << 20
	// attendWork is how much one dispatch of attention computes.
	attendWork = 50e9
	// selectThreads are those that choose a row's blocks where the rows are few.
	selectThreads = 512
)

// attendKernel is the kernel of one form for heads of at most hd dims.
func (b *Backend) attendKernel(form string, hd int) (kernel[shaders.AttendParams], bool) {
	stage := "_half"
	if b.float32 {
		stage = "_float"
	}
	if form == "few" {
		stage = "" // float32 in every class
	}
	for _, dims := range []int{32, 64, 128, 256} {
		if hd <= dims {
			return kernel[shaders.AttendParams](fmt.Sprintf("qsa_attend_%s%s_%d", form, stage, dims)), true
		}
	}
	return "", false
}

// MeanBlocks: y[j] = mean of the ratio raw rows from (first+j)*ratio on.
func (b *Backend) MeanBlocks(y, raw ops.Tensor, first, ratio int) {
	fit(y.Cols == raw.Cols && first >= 0 && ratio > 0 && (first+y.Rows)*ratio <= raw.Rows, "MeanBlocks", y, raw)
	e := b.begin()
	defer e.end()
	p := shaders.MeanBlocksParams{Blocks: uint32(y.Rows), Dim: uint32(y.Cols), First: uint32(first), Ratio: uint32(ratio)}
	dispatch(e, meanBlocks, p, launch{
		buffers: []region{shaders.MeanBlocksY: at(y), shaders.MeanBlocksRaw: at(raw)},
		groups:  over(y.Rows*y.Cols, shaders.BlockThreads), threads: shaders.BlockThreads,
	})
}

// index is the choice of blocks of a chunk. It lies in memory that the next choice writes over: an Index is of use
// until the next SelectBlocks.
type index struct {
	b                        *Backend
	turn                     int // of the choice, to tell a late use
	rows, pos, ratio, budget int
	scored                   int     // first row with more complete blocks than the budget
	list, mask               *memory // [rows, budget], [rows, words]; nil where no row is scored
	words                    int     // of a row of the mask
}

// Blocks lists, ascending, the complete blocks visible to row r. Coherent after Wait, until the next SelectBlocks.
func (x *index) Blocks(r int) []int32 {
	if r < x.scored {
		every := make([]int32, (x.pos+r+1)/x.ratio)
		for j := range every {
			every[j] = int32(j)
		}
		return every
	}
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	if x.turn != x.b.choices.blocks {
		panic("gpu: blocks are read after the next SelectBlocks")
	}
	return intsOf(x.list.buf.Bytes())[r*x.budget : (r+1)*x.budget]
}

// newIndex makes room for the choice of a chunk and says which rows have to be scored.
func (e *encoding) newIndex(rows, pos, ratio, budget int) *index {
	e.b.choices.blocks++
	x := &index{b: e.b, turn: e.b.choices.blocks, rows: rows, pos: pos, ratio: ratio, budget: budget}
	// complete = (pos+r+1)/ratio > budget
	x.scored = min(max((budget+1)*ratio-pos-1, 0), rows)
	if x.scored == rows {
		return x
	}
	last := min((pos+rows)/ratio, e.b.choices.dense()/ratio+1) // no row of the dense form has more
	x.words = (last + 31) / 32
	x.list, x.mask = e.lasting(blockList, 4*rows*max(budget, 1)), e.lasting(blockMask, 4*rows*x.words)
	return x
}

// SelectBlocks chooses the min(budget, complete) best complete blocks of every row, scored in float32 in every class.
// A row that sees all of them is not scored, so bk is not read for it.
func (b *Backend) SelectBlocks(iq ops.Tensor, h ops.Heads, bk ops.Tensor, pos, ratio, budget int) ops.Index {
	fit(h.Within(iq) && pos >= 0 && ratio > 0 && budget >= 0, "SelectBlocks", iq, bk)
	e := b.begin()
	defer e.end()
	x := e.newIndex(iq.Rows, pos, ratio, budget)
	if x.scored == x.rows || e.failed() {
		return x
	}
	last := (pos + iq.Rows) / ratio
	fit(bk.Rows >= last && bk.Cols == h.Dim, "SelectBlocks", iq, bk)
	const tile = shaders.ScoreTile
	stride := (last + tile - 1) / tile * tile
	each := max(scoreBytes/(4*stride)/tile*tile, tile)
	each = min(each, (x.rows-x.scored+tile-1)/tile*tile)
	scores := e.take(4 * each * stride)
	for from := x.scored; from < x.rows; from += each {
		e.chooseRows(x, scores, iq, h, bk, span{from, min(from+each, x.rows), stride})
	}
	return x
}

// span is rows [from, to) of a chunk, whose scores stand stride floats apart.
type span struct{ from, to, stride int }

// chooseRows scores some rows and lists their best blocks.
func (e *encoding) chooseRows(x *index, scores region, iq ops.Tensor, h ops.Heads, bk ops.Tensor, s span) {
	const tile = shaders.ScoreTile
	rows, complete := s.to-s.from, (x.pos+s.to)/x.ratio
	score, threads := scoreBlocks, simdWidth
	groups := metal.Size{X: blocks(complete, tile), Y: blocks(rows, tile), Z: 1}
	if few(x.rows) {
		threads = selectThreads
		if h.Dim%4 == 0 && h.N*h.Dim <= shaders.FewQuery && bk.Off%4 == 0 {
			score, groups = scoreFew, metal.Size{X: blocks(complete, shaders.FewBlocks), Y: rows, Z: 1}
		}
	}
	dispatch(e, score, shaders.ScoreBlocksParams{
		Rows: uint32(rows), FirstRow: uint32(s.from), Blocks: uint32(complete), Stride: uint32(s.stride), Cols: uint32(iq.Cols),
		From: uint32(h.From), Heads: uint32(h.N), HeadStride: uint32(h.Stride), Dim: uint32(h.Dim),
		Scale: float32(1 / math.Sqrt(float64(h.Dim))),
	}, launch{
		buffers: []region{shaders.ScoreOut: scores, shaders.ScoreIq: at(iq), shaders.ScoreBk: at(bk)},
		groups:  groups,
		threads: shaders.BlockThreads,
		work:    2 * float64(rows) * float64(complete*h.N*h.Dim),
	})
	dispatch(e, selectBlocks, shaders.SelectBlocksParams{
		FirstRow: uint32(s.from), Pos: uint32(x.pos), Ratio: uint32(x.ratio), Budget: uint32(x.budget),
		Stride: uint32(s.stride), Words: uint32(x.words),
	}, launch{
		buffers: []region{shaders.SelectList: x.list.whole(), shaders.SelectMask: x.mask.whole(), shaders.SelectScore: scores},
		groups:  metal.Size{X: rows, Y: 1, Z: 1}, threads: threads,
	})
}

// Attend: o = softmax(q k / sqrt(Hd) over visible) v * sigmoid(gate). Heads have at most 256 dims.
func (b *Backend) Attend(o, qg ops.Tensor, k, v ops.Cache, chosen ops.Index, pos, ratio int, d ops.AttentionDims) {
	x, mine := chosen.(*index)
	fit(mine && x.b == b && x.pos == pos && x.ratio == ratio && x.rows == o.Rows, "Attend with another chunk's index", o)
	dense, ok := b.attendKernel("dense", d.Hd)
	gather, _ := b.attendKernel("gather", d.Hd)
	fit(ok && d.FitsAttend(o, qg, k, v, pos), "Attend", o, qg, k.Data, v.Data)
	if o.Rows == 0 {
		return
	}
	e := b.begin()
	defer e.end()
	if x.scored < x.rows && x.turn != b.choices.blocks {
		panic("gpu: Attend with an index from before the last SelectBlocks")
	}
	a := attend{e, x, d, k.Format, []region{
		shaders.AttendO: at(o), shaders.AttendQg: at(qg), shaders.AttendK: at(k.Data), shaders.AttendV: at(v.Data),
		shaders.AttendList: at(o), shaders.AttendMask: at(o), // never read where no row is scored
		shaders.AttendKScales: at(o), shaders.AttendVScales: at(o), // nor these where there are no codes
	}}
	if k.Format == ops.RowsQ8 {
		a.buffers[shaders.AttendKScales], a.buffers[shaders.AttendVScales] = at(k.Scales), at(v.Scales)
	}
	if x.scored < x.rows && !e.failed() {
		a.buffers[shaders.AttendList], a.buffers[shaders.AttendMask] = x.list.whole(), x.mask.whole()
	}
	if few(o.Rows) {
		a.few(o)
		return
	}
	far := min(max(b.choices.dense()-pos, x.scored), x.rows) // first row that gathers
	pairs, group := shaders.DenseRows, d.Hq/d.Hkv
	if b.float32 {
		pairs = shaders.GatherRows
	}
	a.cut(0, far, pos+far, func(from, to int) (kernel[shaders.AttendParams], metal.Size) {
		return dense, metal.Size{X: ((to-from)*group + pairs - 1) / pairs, Y: d.Hkv, Z: 1}
	})
	a.cut(far, x.rows, (x.budget+1)*ratio, func(from, to int) (kernel[shaders.AttendParams], metal.Size) {
		return gather, metal.Size{X: to - from, Y: d.Hkv, Z: (group + shaders.GatherRows - 1) / shaders.GatherRows}
	})
}

// attend is one call of Attend.
type attend struct {
	*encoding
	*index
	ops.AttentionDims
	format  ops.RowFormat
	buffers []region
}

// params are those of a dispatch for rows [from, to).
func (a *attend) params(from, to int) shaders.AttendParams {
	return shaders.AttendParams{
		Rows: uint32(to - from), FirstRow: uint32(from), Pos: uint32(a.pos), Ratio: uint32(a.ratio), Budget: uint32(a.budget),
		Words: uint32(a.words), Hq: uint32(a.Hq), Hkv: uint32(a.Hkv), Hd: uint32(a.Hd),
		Format: uint32(a.format), Scale: float32(1 / math.Sqrt(float64(a.Hd))),
	}
}

// few attends all rows, which are few: the keys of a row go to as many threadgroups as they make parts, and what those
// found is joined.
func (a *attend) few(o ops.Tensor) {
	parts := attendParts(a.pos+a.rows, a.ratio, a.budget)
	k, _ := a.encoding.b.attendKernel("few", a.Hd)
	p := a.params(0, a.rows)
	p.Parts = uint32(parts)
	part := a.take(attendScratch(a.AttentionDims, a.rows, parts))
	l := launch{buffers: append(a.buffers[:len(a.buffers):len(a.buffers)], part), threads: shaders.BlockThreads}
	l.groups = metal.Size{X: parts, Y: a.Hkv * blocks(a.Hq/a.Hkv, shaders.FewHeads), Z: a.rows}
	dispatch(a.encoding, k, p, l)
	l.groups = metal.Size{X: a.Hq, Y: a.rows, Z: blocks(a.Hd, shaders.BlockThreads)}
	dispatch(a.encoding, attendJoin, p, l)
}

// attendParts is how many parts the keys make that a row with so much context sees at most.
func attendParts(context, ratio, budget int) int {
	return blocks(min(context, (budget+1)*ratio), shaders.FewKeys)
}

// attendScratch is what few rows leave for the join.
func attendScratch(d ops.AttentionDims, rows, parts int) int {
	return 4 * rows * d.Hq * parts * (d.Hd + 2)
}

// cut attends rows [from, to), each to at most keys tokens, in dispatches of bounded work.
func (a *attend) cut(from, to, keys int, form func(from, to int) (kernel[shaders.AttendParams], metal.Size)) {
	row := 4 * float64(keys*a.Hq*a.Hd)
	for from < to {
		end := min(to, from+max(1, int(attendWork/row)))
		k, groups := form(from, end)
		dispatch(a.encoding, k, a.params(from, end), launch{buffers: a.buffers, groups: groups, threads: shaders.BlockThreads, work: row * float64(end-from)})
		from = end
	}
}
