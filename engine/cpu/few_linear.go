package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

var _ ops.FewRows = (*Backend)(nil)

// fewTogether is up to how many rows several operations are carried out at once: a token and its drafts.
const fewTogether = 4

// TakesFew says that so many rows are a token and its drafts.
func (b *Backend) TakesFew(rows int) bool { return b.fused() && rows <= fewTogether }

// piece is some outputs of one product.
type piece struct {
	y        rows
	w        *ops.Matrix
	from, to int
}

// pieces is the work of one call, cut for all workers.
type pieces struct {
	list   []piece
	floats []float32 // what the call works in
}

// LinearAll: ys[i] = x ws[i]ᵀ.
func (b *Backend) LinearAll(x ops.Tensor, ys []ops.Tensor, ws []*ops.Matrix) {
	if !b.TakesFew(x.Rows) {
		for i, y := range ys {
			b.Linear(y, x, *ws[i])
		}
		return
	}
	p := b.pieces()
	defer b.cuts.Put(p)
	outputs := 0
	for _, w := range ws {
		outputs += w.Out
	}
	for i, y := range ys {
		if w := ws[i]; x.Rows != y.Rows || x.Cols != w.In || y.Cols != w.Out {
			fit(false, "LinearAll "+w.Name, y, x)
		}
		shapes().FitMatrix("LinearAll", ws[i])
		p.cut(all(y), ws[i], b.share(outputs, ws[i].In))
	}
	b.runPieces(p, all(x))
}

// runPieces computes pieces, whose products have one x.
func (b *Backend) runPieces(p *pieces, x rows) {
	b.parallel(len(p.list), 1, func(s *scratch, from, to int) { p.run(s, x, from, to) })
}

// run computes pieces [from, to). While a worker computes one, its next is brought near.
func (p *pieces) run(s *scratch, x rows, from, to int) {
	for i := from; i < to; i++ {
		p.list[i].run(s, x, p.then(i, s.end))
	}
}

// then is the piece that follows piece i, nil where that is another worker's.
func (p *pieces) then(i, end int) *piece {
	if i+1 < end {
		return &p.list[i+1]
	}
	return nil
}

// pieces returns an empty list.
func (b *Backend) pieces() *pieces {
	p, _ := b.cuts.Get().(*pieces)
	if p == nil {
		p = &pieces{}
	}
	clear(p.list)
	p.list = p.list[:0]
	return p
}

// share is how many of so many outputs of so many inputs a piece takes: as many as are computed side by side, and more of few
// inputs, so that beginning with them is not what takes the time. In the class AMX every piece splits the rows of x again, so it
// takes more, yet few enough for some pieces for every worker.
func (b *Backend) share(outputs, inputs int) int {
	if b.class != AMX {
		return fewColumns(inputs)
	}
	each := (outputs/(4*b.workers) + fma.FewOutputs - 1) / fma.FewOutputs * fma.FewOutputs
	return min(max(each, fma.FewOutputs), blockedOutputs)
}

// fewColumns is how many outputs of so many inputs are a piece of a product.
func fewColumns(inputs int) int {
	return fma.FewOutputs * min(max(fewInputs/max(inputs, 1), 1), 4)
}

// fewInputs is how many inputs make 64 outputs a piece.
const fewInputs = 512

// cut adds a product in pieces of `each` outputs.
func (p *pieces) cut(y rows, w *ops.Matrix, each int) {
	for o := 0; o < w.Out; o += each {
		p.list = append(p.list, piece{y, w, o, min(o+each, w.Out)})
	}
}

// run computes a piece, before another.
func (p *piece) run(s *scratch, x rows, then *piece) {
	m := product{y: p.y, at: p.from, x: x, w: p.w, from: p.from, to: p.to}
	if then != nil {
		m.then = next{then.w, then.from}
	}
	m.run(s)
}
