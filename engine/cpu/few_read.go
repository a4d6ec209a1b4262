package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// fewRead is a read of few rows: every step is cut over all workers. Its memory is the next read's.
type fewRead struct {
	streamRead
	asked  ops.StreamRead // what in points to
	z, low rows
	floats []float32 // of z and low
	pieces pieces    // of the product with Down
	first  int       // items before the columns of x: 1 where there is an Inject, whose few outputs are long chains
	each   int       // columns of x an item
	phases [3]phase
}

// reset forgets what was read, and keeps the memory.
func (r *fewRead) reset() { *r = fewRead{floats: r.floats, pieces: r.pieces.cleared()} }

// The phases of a read.
const (
	readNorms = iota
	readDown
	readMix
)

// few prepares a read of few rows in three steps: norms; the product with Down; and Inject beside the
// columns of x, each from its own outputs of Up.
func (r *fewRead) few() []phase {
	count, width, low := r.in.X.Rows, r.in.Wide.Cols, r.in.Down.Out
	r.rows = count
	r.floats = floats(&r.floats, count*(width+low))
	r.z = rows{data: r.floats[:count*width], stride: width, width: width, n: count}
	r.low = rows{data: r.floats[count*width:], stride: low, width: low, n: count}
	each := fma.FewOutputs
	if low < r.workers*each {
		each = fma.Lanes
	}
	r.pieces.x, r.pieces.call = r.z, r.newCalls(2)
	r.pieces.cut(r.low, &r.in.Down, each)
	r.each, r.first = fewColumns(2*r.in.Up.In), 0 // of every stream
	if r.in.Inject.Data != nil {
		r.first = 1
	}
	r.phases = [...]phase{{count * r.n, 1}, {r.pieces.n, 1}, {r.first + (r.in.X.Cols+r.each-1)/r.each, 1}}
	return r.phases[:]
}

func (r *fewRead) do(s *scratch, phase, from, to int) {
	switch phase {
	case readNorms:
		for i := from; i < to; i++ {
			r.normStream(s, i/r.n, i%r.n)
		}
	case readDown:
		for i := from; i < to; i++ {
			p := r.pieces.run(s, i)
			for row := range p.y.n {
				s.vector.silu(p.y.at(row)[p.from:p.to], 1/float32(r.n))
			}
		}
	default:
		r.mix(s, from, to)
	}
}

func (r *fewRead) near(s *scratch, phase, item int) {
	switch phase {
	case readDown:
		r.pieces.near(s, 0, item)
	case readMix:
		s.chains.near(&r.in.Up, max(item-r.first, 0)*r.each)
	}
}

func (r *fewRead) name(phase int) string {
	return [...]string{"read norms", "read Down", "read Up"}[phase]
}

// mix computes Inject and x, some columns an item.
func (r *fewRead) mix(s *scratch, from, to int) {
	if from < r.first {
		r.inject(s)
		from = r.first
	}
	h := r.in.X.Cols
	for i := from; i < to; i++ {
		then, c := next{}, (i-r.first)*r.each
		if i+1 < s.end {
			then = next{&r.in.Up, c + r.each}
		}
		r.mixColumns(s, columnsOf{low: r.low, z: r.z, call: r.pieces.call + 1, then: then}, c, min(r.each, h-c))
	}
}

// inject computes how the block's output goes back.
func (r *fewRead) inject(s *scratch) {
	inj := all(r.in.Inj)
	product{y: inj, x: r.z, w: &r.in.Inject, to: r.n, call: r.pieces.call, then: next{&r.in.Up, 0}}.run(s)
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
