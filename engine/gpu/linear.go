package gpu

import (
	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	linearGemmHalf  kernel[shaders.LinearParams] = "linear_gemm_half"
	linearGemmFloat kernel[shaders.LinearParams] = "linear_gemm_float"
)

// Linear: y = x Wᵀ. Few rows go through the matrix-vector kernel, in float32 from end to end, and wait for others like
// them; more go through tiles.
func (b *Backend) Linear(y, x ops.Tensor, w ops.Matrix) {
	fit(x.Rows == y.Rows && x.Cols == w.In && y.Cols == w.Out, "Linear "+w.Name, y, x)
	shapes().FitMatrix("Linear", &w)
	if x.Rows == 0 || w.Out == 0 {
		return
	}
	if few(x.Rows) {
		e := b.join()
		defer e.end()
		e.matvec(matvecInput{at(x), x.Rows, x.Cols}, matvec{y: at(y), outputs: w.Out, bytes: 4 * y.Rows * y.Cols, m: e.matrix(&w)})
		return
	}
	e := b.begin()
	defer e.end()
	m := e.matrix(&w)
	l := launch{
		buffers: []region{
			shaders.LinearY: at(y), shaders.LinearX: at(x),
			shaders.LinearData: m.data, shaders.LinearScales: m.scales, shaders.LinearBiases: m.biases,
		},
		constants: m.constants,
		work:      2 * float64(x.Rows) * float64(w.In) * float64(w.Out),
	}
	p := shaders.LinearParams{Rows: uint32(x.Rows), Inputs: uint32(w.In), Outputs: uint32(w.Out)}
	l.groups = metal.Size{X: blocks(w.Out, shaders.TileOutputs), Y: blocks(x.Rows, shaders.TileRows), Z: 1}
	l.threads = shaders.TileThreads
	if b.float32 || w.Precise {
		dispatch(e, linearGemmFloat, p, l)
	} else {
		dispatch(e, linearGemmHalf, p, l)
	}
}

// blocks is how many blocks of `each` cover n.
func blocks(n, each int) int { return (n + each - 1) / each }
