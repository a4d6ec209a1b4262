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

// pieces are products that have one x, cut for all workers. Their memory is the next call's.
type pieces struct {
	x    rows
	list []cutProduct
	n    int        // pieces of all
	call int        // of all of them
	own  ops.Matrix // of one product alone, and
	y    rows       // what becomes of it
}

// cutProduct is a product in pieces of `each` outputs, the first of which is piece number `first` of all.
type cutProduct struct {
	y           rows
	w           *ops.Matrix
	each, first int
}

// reset forgets what was multiplied.
func (p *pieces) reset() { *p = p.cleared() }

// cleared is an empty list in the memory of p.
func (p *pieces) cleared() pieces {
	clear(p.list)
	return pieces{list: p.list[:0]}
}

// cut adds a product in pieces of `each` outputs.
func (p *pieces) cut(y rows, w *ops.Matrix, each int) {
	p.list = append(p.list, cutProduct{y, w, each, p.n})
	p.n += (w.Out + each - 1) / each
}

// piece is some outputs of one product.
type piece struct {
	*cutProduct
	from, to int
}

// at is piece i.
func (p *pieces) at(i int) piece {
	k := len(p.list) - 1
	for p.list[k].first > i {
		k--
	}
	c := &p.list[k]
	from := (i - c.first) * c.each
	return piece{c, from, min(from+c.each, c.w.Out)}
}

// run computes piece i. While a worker computes one, its next is brought near.
func (p *pieces) run(s *scratch, i int) piece {
	at := p.at(i)
	m := product{y: at.y, at: at.from, x: p.x, w: at.w, from: at.from, to: at.to, call: p.call}
	if i+1 < s.end {
		then := p.at(i + 1)
		m.then = next{then.w, then.from}
	}
	m.run(s)
	return at
}

func (p *pieces) do(s *scratch, _, from, to int) {
	for i := from; i < to; i++ {
		p.run(s, i)
	}
}

func (p *pieces) near(s *scratch, _, i int) {
	at := p.at(i)
	s.chains.near(at.w, at.from)
}

func (p *pieces) name(int) string { return p.list[0].w.Name }

// LinearAll: ys[i] = x ws[i]ᵀ.
func (b *Backend) LinearAll(x ops.Tensor, ys []ops.Tensor, ws []*ops.Matrix) {
	if !b.TakesFew(x.Rows) {
		for i, y := range ys {
			b.Linear(y, x, *ws[i])
		}
		return
	}
	p := b.productsOf(x, ys, ws)
	defer b.cuts.put(p)
	b.inPhases(p, phase{p.n, 1})
}

// productsOf are several products of few rows x, in one call.
func (b *Backend) productsOf(x ops.Tensor, ys []ops.Tensor, ws []*ops.Matrix) *pieces {
	p, outputs := b.cuts.take(), 0
	for _, w := range ws {
		outputs += w.Out
	}
	p.x, p.call = all(x), b.newCall()
	for i, y := range ys {
		if w := ws[i]; x.Rows != y.Rows || x.Cols != w.In || y.Cols != w.Out {
			fit(false, "LinearAll "+w.Name, y, x)
		}
		shapes().FitMatrix("LinearAll", ws[i])
		p.cut(all(y), ws[i], b.share(outputs, ws[i].In))
	}
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
