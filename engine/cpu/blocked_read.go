package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// readRows is how many rows of the streams an item of work takes through a whole read: their normed streams stay in the
// second cache.
const readRows = 64

var _ ops.StreamReader = (*Backend)(nil)

// ReadsStreams says that the rows are enough to decode all weights once for each item of work, or few.
func (b *Backend) ReadsStreams(rows, _ int) bool {
	return b.fused() && rows >= readRows*b.workers || b.TakesFew(rows)
}

// ReadStreams carries out a read, some rows at a time.
func (b *Backend) ReadStreams(in ops.StreamRead) {
	r := b.readOf(in)
	defer b.reads.put(r)
	if b.TakesFew(in.X.Rows) {
		b.inPhases(r, r.few()...)
		return
	}
	rows := min(readRows, (in.X.Rows+2*b.workers-1)/(2*b.workers))
	b.parallel((in.X.Rows+rows-1)/rows, 1, func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			read := r.streamRead
			read.s, read.first, read.rows = s, i*rows, min(rows, in.X.Rows-i*rows)
			read.run()
		}
	})
}

// readOf is a read that fits.
func (b *Backend) readOf(in ops.StreamRead) *fewRead {
	r := b.reads.take()
	r.asked = in
	r.streamRead = streamRead{Backend: b, in: &r.asked}
	r.fit()
	return r
}

// fit refuses shapes that do not fit, and sets n.
func (r *streamRead) fit() {
	in := r.in
	n := streams(in.Wide, in.X)
	fit(n > 0 && len(in.Norm) == in.Wide.Cols && in.Down.In == in.Wide.Cols && in.Up.Out == in.Wide.Cols && in.Up.In == in.Down.Out &&
		(in.Y.Empty() || ops.Same(in.Y, in.X)), "ReadStreams", in.X, in.Wide)
	shapes().FitMatrix("ReadStreams", &in.Down)
	shapes().FitMatrix("ReadStreams", &in.Up)
	if in.Inject.Data != nil {
		fit(in.Inject.Out == n && in.Inject.In == in.Wide.Cols, "ReadStreams", in.Inj, in.Wide)
		shapes().FitMatrix("ReadStreams", &in.Inject)
	}
	if !in.Y.Empty() || in.Inject.Data != nil {
		fit(in.Inj.Rows == in.Wide.Rows && in.Inj.Cols == n, "ReadStreams", in.Inj, in.Wide)
	}
	r.n = n
}

// streamRead is one item of a read.
type streamRead struct {
	*Backend
	in          *ops.StreamRead
	s           *scratch
	n           int // streams
	first, rows int
}

func (r *streamRead) run() {
	width := r.in.Wide.Cols
	z := rows{data: floats(&r.s.values, r.rows*width), stride: width, width: width, n: r.rows}
	low := rows{data: floats(&r.s.more, r.rows*r.in.Down.Out), stride: r.in.Down.Out, width: r.in.Down.Out, n: r.rows}
	r.norm(&z)
	down := product{y: low, x: z, w: &r.in.Down, to: r.in.Down.Out, call: r.newCall()}
	share := 1 / float32(r.n)
	if r.in.Inject.Data == nil {
		down.run(r.s)
	} else {
		inj := all(r.in.Inj).span(r.first, r.first+r.rows)
		together(r.s, down, product{y: inj, x: z, w: &r.in.Inject, to: r.n, call: down.call})
		r.s.vector.sigmoid(inj.data[r.first*r.n:(r.first+r.rows)*r.n], share, 2)
	}
	r.s.vector.silu(low.data, share)
	r.mix(&low, &z)
}

// norm injects what is deferred and norms the streams into z.
func (r *streamRead) norm(z *rows) {
	h := r.in.X.Cols
	wide := all(r.in.Wide)
	for i := range r.rows {
		at := r.first + i
		for g := range r.n {
			stream := wide.at(at)[g*h : (g+1)*h]
			if !r.in.Y.Empty() {
				r.s.vector.addScaled(stream, r.in.Y.Row(at), r.in.Inj.Row(at)[g])
			}
			r.rmsNorm(z.at(i)[g*h:(g+1)*h], stream, r.in.Norm[g*h:(g+1)*h], r.in.Eps)
		}
	}
}

// mix computes x, some columns of every stream at a time: what Up gives is used up at once.
func (r *streamRead) mix(low, z *rows) {
	h, call := r.in.X.Cols, r.newCall()
	for c := 0; c < h; c += mixColumns {
		r.mixColumns(r.s, columnsOf{low: *low, z: *z, call: call}, c, min(mixColumns, h-c))
	}
}

// columnsOf is what columns of x are made of: Up's inputs and the streams, within one call; and what the next columns begin with.
type columnsOf struct {
	low, z rows
	call   int
	then   next
}

// mixColumns computes n columns of x from c on.
func (r *streamRead) mixColumns(s *scratch, in columnsOf, c, n int) {
	h, x := r.in.X.Cols, all(r.in.X).span(r.first, r.first+r.rows)
	u := rows{data: floats(&s.panel, r.n*r.rows*n), stride: n, width: n, n: r.rows}
	for g := range r.n {
		then := in.then
		if g+1 < r.n {
			then = next{&r.in.Up, (g+1)*h + c}
		}
		product{y: u.span(g*r.rows, (g+1)*r.rows), x: in.low, w: &r.in.Up, from: g*h + c, to: g*h + c + n, call: in.call, then: then}.run(s)
	}
	for i := range r.rows {
		from := fma.Rows{Data: in.z.at(i)[c:], Step: h}
		s.vector.mixStreams(x.at(i)[c:c+n], fma.Rows{Data: u.data[i*n:], Step: r.rows * n}, from, r.n)
	}
}

// mixColumns is how many columns of a stream are mixed at a time: whole panels.
const mixColumns = 4 * fma.Lanes

// mixStreams: y = mean over n streams, ascending, of sigmoid(u) * z. Stream g is row g of u and of z. What u holds is lost.
func (v vector) mixStreams(y []float32, u, z fma.Rows, n int) {
	done := 0
	if n&(n-1) == 0 { // then a division is the multiplication with the inverse
		done = v.mixWide(y, u, z, n, 1/float32(n))
	}
	if done == len(y) {
		return
	}
	y = y[done:]
	clear(y)
	for g := range n {
		gates := u.Data[g*u.Step+done:][:len(y)]
		v.sigmoid(gates, 1, 1)
		v.addProduct(y, gates, z.Data[g*z.Step+done:])
	}
	for j, sum := range y {
		y[j] = sum / float32(n)
	}
}
