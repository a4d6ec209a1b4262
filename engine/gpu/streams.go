package gpu

import (
	"lector/engine/ops"
	"lector/shaders"
)

const (
	hyperReplicate kernel[shaders.StreamParams] = "hyper_replicate"
	hyperMix       kernel[shaders.StreamParams] = "hyper_mix"
	hyperInject    kernel[shaders.StreamParams] = "hyper_inject"
	hyperAdd       kernel[shaders.StreamParams] = "hyper_add"
)

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
