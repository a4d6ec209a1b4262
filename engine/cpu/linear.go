package cpu

import "lector/engine/ops"

// rows names n rows of a matrix, straight or through a list.
type rows struct {
	data   []float32
	stride int     // floats from one row to the next
	width  int     // floats of a row
	first  int     // row 0 is row `first` of data
	list   []int32 // if not nil, row i is row list[i] of data
	n      int
}

func (r *rows) at(i int) []float32 {
	if r.list != nil {
		i = int(r.list[i])
	} else {
		i += r.first
	}
	return r.data[i*r.stride : i*r.stride+r.width]
}

// all names the rows of t.
func all(t ops.Tensor) rows {
	return rows{data: t.Floats(), stride: t.Cols, width: t.Cols, n: t.Rows}
}

// span is rows [from, to) of r, which must not go through a list.
func (r rows) span(from, to int) rows {
	r.first += from
	r.n = to - from
	return r
}

// outputsPerItem is how many outputs of a matrix one item of work computes; a multiple of four.
const outputsPerItem = 32

// Linear: y = x Wᵀ. Work is cut over outputs, and over rows as well where the outputs are too few for all workers;
// a cut leaves the order of every sum alone.
func (b *Backend) Linear(y, x ops.Tensor, w ops.Matrix) {
	m := b.productOf(y, x, w)
	defer b.cuts.put(m)
	switch {
	case m.x.n == 0 || w.Out == 0:
	case b.TakesFew(m.x.n):
		b.inPhases(m, b.few(m))
	case b.fused():
		b.linearChains(all(y), m.x, &m.own)
	default:
		b.linearRows(all(y), m.x, &m.own)
	}
}

// productOf is one product, which is not cut yet.
func (b *Backend) productOf(y, x ops.Tensor, w ops.Matrix) *pieces {
	if x.Rows != y.Rows || x.Cols != w.In || y.Cols != w.Out { // the message is made only if it is needed
		fit(false, "Linear "+w.Name, y, x)
	}
	m := b.cuts.take()
	m.own, m.x, m.y = w, all(x), all(y)
	shapes().FitMatrix("Linear", &m.own)
	return m
}

// few cuts one product of few rows.
func (b *Backend) few(m *pieces) phase {
	m.call = b.newCall()
	m.cut(m.y, &m.own, b.share(m.own.Out, m.own.In))
	return phase{m.n, 1}
}

// linearRows computes the product in the class cpu-f32.
func (b *Backend) linearRows(out, in rows, w *ops.Matrix) {
	blocks := (w.Out + outputsPerItem - 1) / outputsPerItem
	cuts := min(max(1, 4*b.workers/blocks), max(1, in.n/16))
	each := (in.n + cuts - 1) / cuts
	cost := each * w.In * min(w.Out, outputsPerItem)
	b.parallel(blocks*cuts, grain(cost), func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			top, o := i%cuts*each, i/cuts*outputsPerItem
			end := min(top+each, in.n)
			if top < end {
				product{y: out.span(top, end), at: o, x: in.span(top, end), w: w, from: o, to: min(o+outputsPerItem, w.Out)}.run(s)
			}
		}
	})
}

// product is x Wᵀ for the outputs [from, to) of w, written to y from column `at` on.
type product struct {
	y        rows
	at       int
	x        rows
	w        *ops.Matrix
	from, to int
	call     int // which products have the same x, by its place and number of rows; 0 where that is not known
	slot     int // where what x is packed in is kept, so that some may be

	then next // of the same goroutine, where that is known
}

// next is what is multiplied next: outputs of w from one on.
type next struct {
	w    *ops.Matrix
	from int
}

// run computes the product in the class of s, with the widest kernels that this processor has; the bits are the same
// with all.
func (p product) run(s *scratch) {
	switch {
	case s.chains != nil:
		p.runChains(s.chains)
	case s.vector == plain:
		p.runPlain(s)
	case p.suitsNibbles(s.vector):
		p.runNibbles(s)
	default:
		p.runPanels(s)
	}
}

// runPlain decodes four rows of W at a time, which meet all rows of x before the next four: W is never held whole,
// and is decoded once.
func (p product) runPlain(s *scratch) {
	panel := floats(&s.panel, 4*p.w.In)
	for o := p.from; o < p.to; o += 4 {
		n := min(4, p.to-o)
		var ws [4][]float32
		for j := range ws {
			if j >= n { // a ragged end repeats a row; those results are dropped
				ws[j] = ws[0]
				continue
			}
			ws[j] = panel[j*p.w.In : (j+1)*p.w.In]
			plain.decodeRow(ws[j], p.w, o+j)
		}
		p.columns(p.at+o-p.from, n, &ws)
	}
}

// columns computes n <= 4 columns of y from `col` on for the decoded weight rows ws.
func (p *product) columns(col, n int, ws *[4][]float32) {
	var c [8]float32
	i := 0
	for ; i+2 <= p.x.n; i += 2 {
		dots2x4(&c, p.x.at(i), p.x.at(i+1), ws)
		copy(p.y.at(i)[col:col+n], c[:4])
		copy(p.y.at(i + 1)[col:col+n], c[4:])
	}
	if i < p.x.n {
		dots1x4(&c, p.x.at(i), ws)
		copy(p.y.at(i)[col:col+n], c[:4])
	}
}

// dots2x4 sets c[4i+j] to the dot product of x_i and w[j]: one float32 accumulator each, products rounded to
// float32, index ascending. Eight accumulators are what the sixteen registers of the smallest target hold without
// spilling: four rows at a time run at half the speed.
func dots2x4(c *[8]float32, x0, x1 []float32, w *[4][]float32) {
	n := len(x0)
	x1 = x1[:n]
	w0, w1, w2, w3 := w[0][:n], w[1][:n], w[2][:n], w[3][:n]
	var a0, a1, a2, a3, b0, b1, b2, b3 float32
	for k := range n {
		p, q, r, s := w0[k], w1[k], w2[k], w3[k]
		u, v := x0[k], x1[k]
		a0 += float32(u * p)
		a1 += float32(u * q)
		a2 += float32(u * r)
		a3 += float32(u * s)
		b0 += float32(v * p)
		b1 += float32(v * q)
		b2 += float32(v * r)
		b3 += float32(v * s)
	}
	c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7] = a0, a1, a2, a3, b0, b1, b2, b3
}

// dots1x4 is the first row of dots2x4.
func dots1x4(c *[8]float32, x []float32, w *[4][]float32) {
	n := len(x)
	w0, w1, w2, w3 := w[0][:n], w[1][:n], w[2][:n], w[3][:n]
	var c0, c1, c2, c3 float32
	for k, v := range x {
		c0 += float32(v * w0[k])
		c1 += float32(v * w1[k])
		c2 += float32(v * w2[k])
		c3 += float32(v * w3[k])
	}
	c[0], c[1], c[2], c[3] = c0, c1, c2, c3
}
