package gpu

import (
	"fmt"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	denseEmbed      kernel[shaders.EmbedParams]   = "dense_embed"
	denseNormGroups kernel[shaders.NormParams]    = "dense_norm_groups"
	denseNormHeads  kernel[shaders.NormParams]    = "dense_norm_heads"
	denseSiLU       kernel[shaders.ElementParams] = "dense_silu"
	denseSigmoid    kernel[shaders.ElementParams] = "dense_sigmoid"
	denseSwiGLU     kernel[shaders.ElementParams] = "dense_swiglu"
	denseAdd        kernel[shaders.ElementParams] = "dense_add"
	denseAddGated   kernel[shaders.ElementParams] = "dense_add_gated"
	denseCopy       kernel[shaders.CopyParams]    = "dense_copy"
	denseConv       kernel[shaders.ConvParams]    = "dense_conv"
	denseShiftTail  kernel[shaders.ConvParams]    = "dense_shift_tail"
)

const (
	elementThreads = 256 // of an element-wise threadgroup, one element each
	widestNorm     = 512 // of a run that a simdgroup is too few for
	headThreads    = 128 // of dense_norm_heads: a simdgroup for each run
	simdWidth      = 32
)

// Embed: y[r] = row ids[r] of w.
func (b *Backend) Embed(y ops.Tensor, w ops.Matrix, ids []int32) {
	fit(y.Rows == len(ids) && y.Cols == w.In, "Embed "+w.Name, y)
	shapes().FitMatrix("Embed", &w)
	for _, id := range ids {
		if id < 0 || int(id) >= w.Out {
			panic(fmt.Sprintf("gpu: Embed %s: id %d outside [0, %d)", w.Name, id, w.Out))
		}
	}
	if len(ids) == 0 {
		return
	}
	e := b.begin()
	defer e.end()
	m := e.matrix(&w)
	dispatch(e, denseEmbed, shaders.EmbedParams{Rows: uint32(y.Rows), Cols: uint32(y.Cols)}, launch{
		buffers: []region{
			shaders.EmbedY: at(y), shaders.EmbedIds: upload(e, ids),
			shaders.EmbedData: m.data, shaders.EmbedScales: m.scales, shaders.EmbedBiases: m.biases,
		},
		constants: m.constants,
		groups:    rowsBy(y.Rows, (y.Cols+7)/8, 64),
		threads:   64,
	})
}

// rowsBy is a grid whose y is the row and whose x covers n items of it, `each` a group.
func rowsBy(rows, n, each int) metal.Size { return metal.Size{X: blocks(n, each), Y: rows, Z: 1} }

// RMSNorm: y = x * rsqrt(mean over a group of x² + eps) * scale[col mod len(scale)].
func (b *Backend) RMSNorm(y, x ops.Tensor, scale []float32, group int, eps float32) {
	fit(ops.Same(x, y) && group > 0 && x.Cols%group == 0 && len(scale) > 0 && x.Cols%len(scale) == 0 &&
		(len(scale)%group == 0 || group%len(scale) == 0), "RMSNorm", y, x)
	e := b.begin()
	defer e.end()
	runs := x.Cols / group
	p := shaders.NormParams{
		RowFloats: uint32(x.Cols), Count: uint32(runs), Stride: uint32(group), Width: uint32(group),
		Runs: uint32(x.Rows * runs), ScaleFloats: uint32(len(scale)), ScaleStep: uint32(group), Eps: eps,
	}
	e.norm(p, at(y), at(x), e.vector(scale))
}

// RMSNormHeads norms the heads h of x in place, each a group of its own.
func (b *Backend) RMSNormHeads(x ops.Tensor, h ops.Heads, scale []float32, eps float32) {
	fit(h.Within(x) && len(scale) == h.Dim, "RMSNormHeads", x)
	e := b.begin()
	defer e.end()
	p := shaders.NormParams{
		RowFloats: uint32(x.Cols), From: uint32(h.From), Count: uint32(h.N), Stride: uint32(h.Stride), Width: uint32(h.Dim),
		Runs: uint32(x.Rows * h.N), ScaleFloats: uint32(h.Dim), Eps: eps,
	}
	e.norm(p, at(x), at(x), e.vector(scale))
}

// norm picks the kernel by the width of a run alone: what a row's sums are may not depend on anything else.
func (e *encoding) norm(p shaders.NormParams, y, x, scale region) {
	buffers := []region{shaders.NormY: y, shaders.NormX: x, shaders.NormScale: scale}
	if normThreads(int(p.Width)) == simdWidth {
		dispatch(e, denseNormHeads, p, launch{buffers: buffers, groups: over(int(p.Runs), headThreads/simdWidth), threads: headThreads})
		return
	}
	dispatch(e, denseNormGroups, p, launch{buffers: buffers, groups: over(int(p.Runs), 1), threads: normThreads(int(p.Width))})
}

// normThreads is how many threads share a run.
func normThreads(width int) int {
	if width <= 512 {
		return simdWidth
	}
	return widestNorm
}

// elements dispatches a kernel over every element of t.
func (e *encoding) elements(k kernel[shaders.ElementParams], t ops.Tensor, p shaders.ElementParams, buffers []region) {
	p.Count, p.Cols = uint32(t.Rows*t.Cols), uint32(t.Cols)
	dispatch(e, k, p, launch{buffers: buffers, groups: over(t.Rows*t.Cols, elementThreads), threads: elementThreads})
}

// SiLU: x = silu(x * scale) in place.
func (b *Backend) SiLU(x ops.Tensor, scale float32) {
	e := b.begin()
	defer e.end()
	e.elements(denseSiLU, x, shaders.ElementParams{Scale: scale}, []region{shaders.ElementY: at(x)})
}

// Sigmoid: x = gain * sigmoid(x * scale) in place.
func (b *Backend) Sigmoid(x ops.Tensor, scale, gain float32) {
	e := b.begin()
	defer e.end()
	e.elements(denseSigmoid, x, shaders.ElementParams{Scale: scale, Gain: gain}, []region{shaders.ElementY: at(x)})
}

// SwiGLU: y = silu(gate) * up.
func (b *Backend) SwiGLU(y, gate, up ops.Tensor) {
	fit(ops.Same(y, gate, up), "SwiGLU", y, gate, up)
	e := b.begin()
	defer e.end()
	e.elements(denseSwiGLU, y, shaders.ElementParams{},
		[]region{shaders.ElementY: at(y), shaders.ElementX: at(up), shaders.ElementGate: at(gate)})
}

// AddGated: y[r] += sigmoid(gate[r]) * x[r].
func (b *Backend) AddGated(y, x, gate ops.Tensor) {
	fit(ops.Same(y, x) && gate.Rows == y.Rows && gate.Cols == 1, "AddGated", y, x, gate)
	e := b.begin()
	defer e.end()
	e.elements(denseAddGated, y, shaders.ElementParams{},
		[]region{shaders.ElementY: at(y), shaders.ElementX: at(x), shaders.ElementGate: at(gate)})
}

// Add: y += x.
func (b *Backend) Add(y, x ops.Tensor) {
	fit(ops.Same(y, x), "Add", y, x)
	e := b.begin()
	defer e.end()
	e.elements(denseAdd, y, shaders.ElementParams{}, []region{shaders.ElementY: at(y), shaders.ElementX: at(x)})
}

// CopyRows: dst[dstRow+r, c] = src[r, from+c] for every row of src and every column c of dst.
func (b *Backend) CopyRows(dst ops.Tensor, dstRow int, src ops.Tensor, from int) {
	fit(dstRow >= 0 && dstRow+src.Rows <= dst.Rows && from >= 0 && from+dst.Cols <= src.Cols, "CopyRows", dst, src)
	e := b.begin()
	defer e.end()
	e.copyRows(at(dst).plus(4*dstRow*dst.Cols), at(src).plus(4*from), src.Rows,
		shaders.CopyParams{Cols: uint32(dst.Cols), DstFloats: uint32(dst.Cols), SrcFloats: uint32(src.Cols)})
}

func (e *encoding) copyRows(dst, src region, rows int, p shaders.CopyParams) {
	dispatch(e, denseCopy, p, launch{
		buffers: []region{shaders.CopyDst: dst, shaders.CopySrc: src},
		groups:  rowsBy(rows, int(p.Cols), elementThreads), threads: elementThreads,
	})
}

// Conv: causal depthwise convolution over x with the rows of tail before it.
func (b *Backend) Conv(y, x, tail ops.Tensor, w []float32, dilation int, activate bool) {
	fit(ops.Same(y, x) && x.Cols > 0 && len(w) > 0 && len(w)%x.Cols == 0 && dilation > 0 && tail.Cols == x.Cols &&
		tail.Rows == (len(w)/x.Cols-1)*dilation && apart(y, x), "Conv", y, x, tail)
	e := b.begin()
	defer e.end()
	p := shaders.ConvParams{
		Rows: uint32(x.Rows), Cols: uint32(x.Cols), Taps: uint32(len(w) / x.Cols), Dilation: uint32(dilation), TailRows: uint32(tail.Rows),
	}
	if activate {
		p.Activate = 1
	}
	dispatch(e, denseConv, p, launch{
		buffers: []region{shaders.ConvY: at(y), shaders.ConvX: at(x), shaders.ConvTail: at(tail), shaders.ConvWeight: e.vector(w)},
		groups:  rowsBy(x.Rows, x.Cols, elementThreads), threads: elementThreads,
	})
}

// apart says that two tensors share no memory.
func apart(a, b ops.Tensor) bool {
	return a.Mem != b.Mem || a.Off+a.Rows*a.Cols <= b.Off || b.Off+b.Rows*b.Cols <= a.Off
}

// ShiftTail: tail = its own rows followed by those of x, the last Rows of them.
func (b *Backend) ShiftTail(tail, x ops.Tensor) {
	fit(tail.Cols == x.Cols, "ShiftTail", tail, x)
	if tail.Rows == 0 || x.Rows == 0 {
		return
	}
	e := b.begin()
	defer e.end()
	p := shaders.ConvParams{Rows: uint32(x.Rows), Cols: uint32(x.Cols), TailRows: uint32(tail.Rows)}
	dispatch(e, denseShiftTail, p, launch{
		buffers: []region{shaders.ConvX: at(x), shaders.ConvTail: at(tail)},
		groups:  over(x.Cols, elementThreads), threads: elementThreads,
	})
}
