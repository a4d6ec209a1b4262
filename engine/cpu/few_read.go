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

// readFew carries out a read of few rows of n streams in three steps: norms; the product with Down; and Inject beside the
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
	each := fma.FewOutputs
	if low < b.workers*each {
		each = fma.Lanes
	}
	p.cut(r.low, &in.Down, each)
	b.inPhases(&r, phase{count * n, grain(8 * in.X.Cols)}, phase{len(p.list), 1})
	r.mixFew()
}

// do norms streams in the first phase, and computes pieces of the product with Down in the second.
func (r *fewRead) do(s *scratch, phase, from, to int) {
	if phase == 1 {
		r.pieces.run(s, r.z, from, to)
		return
	}
	for i := from; i < to; i++ {
		r.normStream(s, i/r.n, i%r.n)
	}
}

// mixFew computes x, some columns an item of work. Before them comes Inject, whose few outputs are long chains.
func (r *fewRead) mixFew() {
	each := fewColumns(2 * r.in.Up.In) // of every stream
	h, first := r.in.X.Cols, 0
	if r.in.Inject.Data != nil {
		first = 1
	}
	r.vector.silu(r.low.data, 1/float32(r.n))
	r.parallel(first+(h+each-1)/each, 1, func(s *scratch, from, to int) {
		if from < first {
			r.inject(s)
			from = first
		}
		for i := from; i < to; i++ {
			then, c := next{}, (i-first)*each
			if i+1 < s.end {
				then = next{&r.in.Up, c + each}
			}
			r.mixColumns(s, columnsOf{low: r.low, z: r.z, then: then}, c, min(each, h-c))
		}
	})
}

// inject computes how the block's output goes back.
func (r *fewRead) inject(s *scratch) {
	inj := all(r.in.Inj)
	product{y: inj, x: r.z, w: &r.in.Inject, to: r.n, then: next{&r.in.Up, 0}}.run(s)
	s.vector.sigmoid(inj.data, 1/float32(r.n), 2)
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
