package cpu

import (
	"fmt"

	"lector/engine/ops"
)

// Embed: y[r] = row ids[r] of w.
func (b *Backend) Embed(y ops.Tensor, w ops.Matrix, ids []int32) {
	fit(y.Rows == len(ids) && y.Cols == w.In, "Embed "+w.Name, y)
	shapes().FitMatrix("Embed", &w)
	for _, id := range ids {
		if id < 0 || int(id) >= w.Out {
			panic(fmt.Sprintf("cpu: Embed %s: id %d outside [0, %d)", w.Name, id, w.Out))
		}
	}
	data := y.Floats()
	b.parallel(y.Rows, grain(y.Cols), func(_ *scratch, from, to int) {
		for r := from; r < to; r++ {
			plain.decodeRow(data[r*y.Cols:(r+1)*y.Cols], &w, int(ids[r]))
		}
	})
}

// RMSNorm: y = x * rsqrt(mean over a group of x² + eps) * scale[col mod len(scale)].
func (b *Backend) RMSNorm(y, x ops.Tensor, scale []float32, group int, eps float32) {
	fit(ops.Same(x, y) && group > 0 && x.Cols%group == 0 && len(scale) > 0 && x.Cols%len(scale) == 0 &&
		(len(scale)%group == 0 || group%len(scale) == 0), "RMSNorm", y, x)
	in, out, groups := x.Floats(), y.Floats(), x.Cols/group
	b.parallel(x.Rows*groups, grain(4*group), func(_ *scratch, from, to int) {
		for i := from; i < to; i++ {
			at := i % groups * group % len(scale)
			b.rmsNorm(out[i*group:(i+1)*group], in[i*group:(i+1)*group], scale[at:], eps)
		}
	})
}

// rmsNorm norms one group. A scale shorter than x is used over and over.
func (b *Backend) rmsNorm(y, x, scale []float32, eps float32) {
	r := float32(rsqrt(b.sumProducts(x, x)/float64(len(x)) + float64(eps)))
	for len(x) > 0 {
		n := min(len(x), len(scale))
		b.vector.normScale(y[:n], x[:n], scale[:n], r)
		x, y = x[n:], y[n:]
	}
}

// sumProducts is the sum of x[i] y[i] in float64, in the order of the class.
func (b *Backend) sumProducts(x, y []float32) float64 {
	if b.fused() {
		return b.vector.sumLanes(x, y)
	}
	return dot64(x, y)
}

// eachHead calls f with every head of every row of x.
func (b *Backend) eachHead(x ops.Tensor, h ops.Heads, f func(head []float32)) {
	data := x.Floats()
	b.parallel(x.Rows*h.N, grain(4*h.Dim), func(_ *scratch, from, to int) {
		for i := from; i < to; i++ {
			f(data[i/h.N*x.Cols+h.From+i%h.N*h.Stride:][:h.Dim])
		}
	})
}

// RMSNormHeads norms the heads h of x in place, each a group of its own.
func (b *Backend) RMSNormHeads(x ops.Tensor, h ops.Heads, scale []float32, eps float32) {
	fit(h.Within(x) && len(scale) == h.Dim, "RMSNormHeads", x)
	b.eachHead(x, h, func(head []float32) { b.rmsNorm(head, head, scale, eps) })
}

// each runs f over runs of the elements of tensors that have one shape.
func (b *Backend) each(t ops.Tensor, f func(from, to int)) {
	b.parallel(t.Rows*t.Cols, grain(8), func(_ *scratch, from, to int) { f(from, to) })
}

// SiLU: x = silu(x * scale) in place.
func (b *Backend) SiLU(x ops.Tensor, scale float32) {
	data := x.Floats()
	b.each(x, func(from, to int) { b.vector.silu(data[from:to], scale) })
}

// Sigmoid: x = gain * sigmoid(x * scale) in place.
func (b *Backend) Sigmoid(x ops.Tensor, scale, gain float32) {
	data := x.Floats()
	b.each(x, func(from, to int) { b.vector.sigmoid(data[from:to], scale, gain) })
}

// SwiGLU: y = silu(gate) * up.
func (b *Backend) SwiGLU(y, gate, up ops.Tensor) {
	fit(ops.Same(y, gate, up), "SwiGLU", y, gate, up)
	out, g, u := y.Floats(), gate.Floats(), up.Floats()
	b.each(y, func(from, to int) { b.vector.swiGLU(out[from:to], g[from:to], u[from:to]) })
}

// AddGated: y[r] += sigmoid(gate[r]) * x[r].
func (b *Backend) AddGated(y, x, gate ops.Tensor) {
	fit(ops.Same(y, x) && gate.Rows == y.Rows && gate.Cols == 1, "AddGated", y, x, gate)
	out, in, g := y.Floats(), x.Floats(), gate.Floats()
	b.parallel(y.Rows, grain(y.Cols), func(_ *scratch, from, to int) {
		for r := from; r < to; r++ {
			b.vector.addScaled(out[r*y.Cols:(r+1)*y.Cols], in[r*y.Cols:(r+1)*y.Cols], sigmoid(g[r]))
		}
	})
}

// Add: y += x.
func (b *Backend) Add(y, x ops.Tensor) {
	fit(ops.Same(y, x), "Add", y, x)
	out, in := y.Floats(), x.Floats()
	b.each(y, func(from, to int) { addTo(out[from:to], in[from:to]) })
}

// addTo: y += x.
func addTo(y, x []float32) {
	x = x[:len(y)]
	for i, v := range x {
		y[i] += v
	}
}

// CopyRows: dst[dstRow+r, c] = src[r, from+c] for every row of src and every column c of dst.
func (b *Backend) CopyRows(dst ops.Tensor, dstRow int, src ops.Tensor, from int) {
	fit(dstRow >= 0 && dstRow+src.Rows <= dst.Rows && from >= 0 && from+dst.Cols <= src.Cols, "CopyRows", dst, src)
	to, in := dst.Floats(), src.Floats()
	b.parallel(src.Rows, grain(dst.Cols), func(_ *scratch, first, last int) {
		for r := first; r < last; r++ {
			copy(to[(dstRow+r)*dst.Cols:(dstRow+r+1)*dst.Cols], in[r*src.Cols+from:])
		}
	})
}
