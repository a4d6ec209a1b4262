package gpu

import (
	"lector/metal"
	"lector/shaders"
)

const (
	linearMatvecOne kernel[shaders.MatvecParams] = "linear_matvec_one"
	linearMatvecFew kernel[shaders.MatvecParams] = "linear_matvec_few"
)

// few says that an operation on so many rows goes through the kernels for few rows: float32 from end to end, with the
// work of a row spread over many threadgroups. The number is as large as a batch of decoded rows can get with its
// streams side by side, and is the same for every operation: on either side of it a row's bits are its own.
func few(rows int) bool { return rows <= shaders.VectorRows }

// matvec is one matrix of a product with few rows.
type matvec struct {
	y           region
	outputs     int
	bytes       int // of y
	m           stored
	after       uint32 // a shaders.After*
	scale, gain float32
}

// matvecs are products that wait to go out as one dispatch: with the same rows, by matrices that are stored alike. Each
// operation but another such product sends them off first.
type matvecs struct {
	x    matvecInput
	list []matvec
}

// matvecInput is the rows of a product.
type matvecInput struct {
	region
	rows, cols int
}

// matvecMost is how many matrices a dispatch takes.
const matvecMost = 4

// matvec adds a product with few rows to those that wait, or sends those off first.
func (e *encoding) matvec(x matvecInput, v matvec) {
	w := &e.b.waiting
	if len(w.list) > 0 && !w.takes(x, &v) {
		e.b.flush()
	}
	w.x = x
	if w.list = append(w.list, v); len(w.list) == matvecMost {
		e.b.flush()
	}
}

// takes says that v may go with those that wait: it neither reads nor writes what they write.
func (w *matvecs) takes(x matvecInput, v *matvec) bool {
	if w.x != x || w.list[0].m.constants != v.m.constants {
		return false
	}
	for i := range w.list {
		if o := &w.list[i]; o.y.buf == v.y.buf && o.y.off < v.y.off+v.bytes && v.y.off < o.y.off+o.bytes {
			return false
		}
	}
	return true
}

// flush encodes the products that wait.
func (b *Backend) flush() {
	w := b.waiting
	b.waiting.list = nil
	if len(w.list) == 0 || b.err != nil {
		return
	}
	e := &encoding{b}
	p := shaders.MatvecParams{Rows: uint32(w.x.rows), Inputs: uint32(w.x.cols)}
	buffers := make([]region, shaders.MatvecBiases3+1)
	buffers[shaders.LinearX] = w.x.region
	tiles, outputs := 0, 0
	for i := range matvecMost {
		v := w.list[0] // what is not there has the first one's buffers
		if i < len(w.list) {
			v = w.list[i]
			p.Outputs[i], p.After[i], p.Scale[i], p.Gain[i] = uint32(v.outputs), v.after, v.scale, v.gain
			tiles += blocks(v.outputs, linearTile(w.x.cols, v.outputs))
			outputs += v.outputs
		}
		if i < len(p.Ends) {
			p.Ends[i] = uint32(tiles)
		}
		y, data, scales, biases := shaders.LinearY, shaders.LinearData, shaders.LinearScales, shaders.LinearBiases
		if i > 0 {
			y, data, scales, biases = shaders.MatvecY1+i-1, shaders.MatvecData1+i-1, shaders.MatvecScales1+i-1, shaders.MatvecBiases1+i-1
		}
		buffers[y], buffers[data], buffers[scales], buffers[biases] = v.y, v.m.data, v.m.scales, v.m.biases
	}
	k, tile := linearMatvecFew, shaders.VectorTile
	if w.x.rows == 1 { // with registers for one row only, more of its threadgroups run side by side
		k, tile = linearMatvecOne, 1
	}
	dispatch(e, k, p, launch{
		buffers: buffers, constants: w.list[0].m.constants,
		groups: metal.Size{X: tiles, Y: blocks(w.x.rows, tile), Z: 1}, threads: shaders.VectorThreads,
		work: 2 * float64(w.x.rows) * float64(w.x.cols) * float64(outputs),
	})
}

// vectorLanes is how many lanes of a simdgroup share an output, as the kernels have it.
func vectorLanes(inputs int) int {
	if inputs >= shaders.VectorLong {
		return simdWidth
	}
	return shaders.VectorLanes
}

// vectorTiles is how many tiles the outputs of a product with experts make where a tile has `each` outputs for every lanes
// of its threads.
func vectorTiles(outputs, inputs, threads, each int) int {
	return blocks(outputs, threads/vectorLanes(inputs)*each)
}

// linearTile is how many outputs of a matrix a threadgroup of linear_matvec_* has: matvec_across.
func linearTile(inputs, outputs int) int {
	const most, least = shaders.VectorMost, shaders.VectorLeast
	switch {
	case inputs < shaders.VectorLong:
		return shaders.VectorThreads / shaders.VectorLanes
	case inputs >= shaders.VectorSplitInputs || inputs >= shaders.VectorSplitInputs/2 && outputs <= shaders.VectorSplitOutputs:
		if outputs >= 2*shaders.VectorSplitOutputs {
			return most
		}
		return least
	case outputs >= 6*shaders.VectorSplitOutputs:
		return most * shaders.VectorSimds
	}
	return least * shaders.VectorSimds
}
