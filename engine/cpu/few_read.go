package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// fewRead is a read of few rows: every step is cut over all workers.
type fewRead struct {
	streamRead
	z, low rows
	pieces *pieces
}

// readFew carries out a read of few rows of n streams in three steps: norms; the products with what is normed; and the
// columns of x, each from its own outputs of Up.
func (b *Backend) readFew(in ops.StreamRead, n int) {
	p := b.pieces()
	defer b.cuts.Put(p)
	count, width, low := in.X.Rows, in.Wide.Cols, in.Down.Out
	memory := floats(&p.floats, count*(width+low))
	p.floats = memory
	r := fewRead{
		streamRead: streamRead{Backend: b, in: in, n: n, rows: count}, pieces: p,
		z:   rows{data: memory[:count*width], stride: width, width: width, n: count},
		low: rows{data: memory[count*width:], stride: low, width: low, n: count},
	}
	h := in.X.Cols
	b.parallel(count*n, grain(16*h), func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			r.normStream(s, i/n, i%n)
		}
	})
	r.down()
	each := b.share(h)
	b.parallel((h+each-1)/each, 1, func(s *scratch, from, to int) {
		read := r.streamRead
		read.s = s
		gates := rows{data: floats(&s.more, len(r.low.data)), stride: low, width: low, n: count}
		copy(gates.data, r.low.data)
		s.vector.silu(gates.data, 1/float32(n))
		for i := from; i < to; i++ {
			read.mixColumns(columnsOf{low: &gates, z: &r.z}, i*each, min(each, h-i*each))
		}
	})
}

// normStream injects what is deferred into a stream of a row, and norms it.
func (r *fewRead) normStream(s *scratch, row, g int) {
	h := r.in.X.Cols
	stream := r.in.Wide.Row(row)[g*h : (g+1)*h]
	if !r.in.Y.Empty() {
		s.vector.addScaled(stream, r.in.Y.Row(row), r.in.Inj.Row(row)[g])
	}
	r.rmsNorm(r.z.at(row)[g*h:(g+1)*h], stream, r.in.Norm[g*h:(g+1)*h], r.in.Eps)
}

// down multiplies with Down and Inject. The few outputs of Inject are chains as long as those of Down, so they begin
// first.
func (r *fewRead) down() {
	if r.in.Inject.Data != nil {
		r.pieces.cut(all(r.in.Inj), &r.in.Inject, fma.FewOutputs)
	}
	each := fma.FewOutputs
	if r.in.Down.Out < 2*r.workers*each {
		each = fma.Lanes
	}
	r.pieces.cut(r.low, &r.in.Down, each)
	p := r.pieces
	r.parallel(len(p.list), 1, func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			p.list[i].run(s, r.z)
		}
	})
	if r.in.Inject.Data != nil {
		r.vector.sigmoid(r.in.Inj.Floats(), 1/float32(r.n), 2)
	}
}
