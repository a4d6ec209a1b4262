package gpu

import (
	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	hyperReplicate kernel[shaders.StreamParams] = "hyper_replicate"
	hyperMix       kernel[shaders.StreamParams] = "hyper_mix"
	hyperInject    kernel[shaders.StreamParams] = "hyper_inject"
	hyperAdd       kernel[shaders.StreamParams] = "hyper_add"

	hyperReadNorm kernel[shaders.StreamReadParams] = "hyper_read_norm"
	hyperReadMix  kernel[shaders.StreamReadParams] = "hyper_read_mix"
)

var _ ops.StreamReader = (*Backend)(nil)

// streams is how many streams of x's width wide has, or 0 when it has no whole number of them.
func streams(wide, x ops.Tensor) int {
	if x.Cols == 0 || wide.Rows != x.Rows || wide.Cols%x.Cols != 0 {
		return 0
	}
	return wide.Cols / x.Cols
}

// streams dispatches a kernel with a thread for each element of a row of x, which takes all its streams.
func (e *encoding) streams(k kernel[shaders.StreamParams], wide, x ops.Tensor, gain region) {
	p := shaders.StreamParams{Streams: uint32(wide.Cols / x.Cols), Width: uint32(x.Cols)}
	buffers := []region{shaders.StreamWide: at(wide), shaders.StreamX: at(x)}
	if gain.buf != nil {
		buffers = append(buffers, gain)
	}
	dispatch(e, k, p, launch{buffers: buffers, groups: rowsBy(x.Rows, x.Cols, elementThreads), threads: elementThreads})
}

// Replicate: every stream of wide = x.
func (b *Backend) Replicate(wide, x ops.Tensor) {
	fit(streams(wide, x) > 0, "Replicate", wide, x)
	e := b.begin()
	defer e.end()
	e.streams(hyperReplicate, wide, x, region{})
}

// AddToStreams: every stream of wide += x.
func (b *Backend) AddToStreams(wide, x ops.Tensor) {
	fit(streams(wide, x) > 0, "AddToStreams", wide, x)
	e := b.begin()
	defer e.end()
	e.streams(hyperAdd, wide, x, region{})
}

// Inject: stream g of wide += inj[g] * y.
func (b *Backend) Inject(wide, y, inj ops.Tensor) {
	n := streams(wide, y)
	fit(n > 0 && inj.Rows == wide.Rows && inj.Cols == n, "Inject", wide, y, inj)
	e := b.begin()
	defer e.end()
	e.streams(hyperInject, wide, y, at(inj))
}

// MixStreams: x = mean over streams of u * z, streams ascending.
func (b *Backend) MixStreams(x, u, z ops.Tensor) {
	fit(streams(z, x) > 0 && ops.Same(u, z), "MixStreams", x, u, z)
	e := b.begin()
	defer e.end()
	e.streams(hyperMix, z, x, at(u))
}

// ReadsStreams implements ops.StreamReader: what few rows cost is the number of dispatches. hyper_read_mix adds up as
// products with few inputs do.
func (b *Backend) ReadsStreams(rows, low int) bool { return few(rows) && low < shaders.VectorLong }

// ReadStreams implements ops.StreamReader.
func (b *Backend) ReadStreams(r ops.StreamRead) {
	n, rows := streams(r.Wide, r.X), r.X.Rows
	fit(n > 0 && n <= shaders.ReadStreams && b.ReadsStreams(rows, r.Down.Out) && len(r.Norm) == r.Wide.Cols && r.Down.In == r.Wide.Cols && r.Up.Out == r.Wide.Cols &&
		r.Up.In == r.Down.Out && (r.Y.Empty() || ops.Same(r.Y, r.X)), "ReadStreams", r.X, r.Wide)
	shapes().FitMatrix("ReadStreams", &r.Down)
	shapes().FitMatrix("ReadStreams", &r.Up)
	if rows == 0 {
		return
	}
	e := b.begin()
	defer e.end()
	p := shaders.StreamReadParams{Streams: uint32(n), Width: uint32(r.X.Cols), Low: uint32(r.Down.Out), Eps: r.Eps}
	z := matvecInput{e.take(4 * rows * r.Wide.Cols), rows, r.Wide.Cols}
	low := e.take(4 * rows * r.Down.Out)
	e.readNorm(p, z.region, r)
	share := 1 / float32(n)
	e.matvec(z, matvec{y: low, outputs: r.Down.Out, bytes: 4 * rows * r.Down.Out, m: e.matrix(&r.Down), after: shaders.AfterSilu, scale: share})
	if r.Inject.Data != nil {
		fit(r.Inject.Out == n && r.Inject.In == r.Wide.Cols && r.Inj.Rows == rows && r.Inj.Cols == n, "ReadStreams", r.Inj)
		shapes().FitMatrix("ReadStreams", &r.Inject)
		e.matvec(z, matvec{y: at(r.Inj), outputs: n, bytes: 4 * rows * n, m: e.matrix(&r.Inject), after: shaders.AfterSigmoid, scale: share, gain: 2})
	}
	b.flush()
	up := e.matrix(&r.Up)
	dispatch(e, hyperReadMix, p, launch{
		buffers: []region{
			shaders.ReadX: at(r.X), shaders.ReadZ: z.region, shaders.ReadLow: low,
			shaders.ReadData: up.data, shaders.ReadScales: up.scales, shaders.ReadBiases: up.biases,
		},
		constants: up.constants,
		groups:    metal.Size{X: vectorTiles(r.X.Cols, r.Down.Out, simdWidth, shaders.ReadEach), Y: rows, Z: 1}, threads: shaders.BlockThreads,
	})
}

// readNorm injects what is deferred and norms the streams into z, with the threads that norm would take.
func (e *encoding) readNorm(p shaders.StreamReadParams, z region, r ops.StreamRead) {
	buffers := []region{
		shaders.ReadWide: at(r.Wide), shaders.ReadZ: z, shaders.ReadY: at(r.X), shaders.ReadGain: at(r.X), // never read where nothing is injected
		shaders.ReadScale: e.vector(r.Norm),
	}
	if !r.Y.Empty() {
		p.Inject, buffers[shaders.ReadY], buffers[shaders.ReadGain] = 1, at(r.Y), at(r.Inj)
	}
	dispatch(e, hyperReadNorm, p, launch{
		buffers: buffers, groups: metal.Size{X: int(p.Streams), Y: r.Wide.Rows, Z: 1}, threads: normThreads(int(p.Width)),
	})
}
