package cpu

import "lector/engine/ops"

// streams is how many streams of x's width wide has, or 0 when it has no whole number of them.
func streams(wide, x ops.Tensor) int {
	if x.Cols == 0 || wide.Rows != x.Rows || wide.Cols%x.Cols != 0 {
		return 0
	}
	return wide.Cols / x.Cols
}

// eachStream calls f with every stream of every row of wide, stream g of row r, and row r of x.
func (b *Backend) eachStream(wide, x ops.Tensor, f func(stream, x []float32, r, g int)) {
	n, h := wide.Cols/x.Cols, x.Cols
	w, in := wide.Floats(), x.Floats()
	b.parallel(wide.Rows*n, grain(h), func(_ *scratch, from, to int) {
		for i := from; i < to; i++ {
			r := i / n
			f(w[i*h:(i+1)*h], in[r*h:(r+1)*h], r, i%n)
		}
	})
}

// Replicate: every stream of wide = x.
func (b *Backend) Replicate(wide, x ops.Tensor) {
	fit(streams(wide, x) > 0, "Replicate", wide, x)
	b.eachStream(wide, x, func(stream, x []float32, _, _ int) { copy(stream, x) })
}

// AddToStreams: every stream of wide += x.
func (b *Backend) AddToStreams(wide, x ops.Tensor) {
	fit(streams(wide, x) > 0, "AddToStreams", wide, x)
	b.eachStream(wide, x, func(stream, x []float32, _, _ int) { addTo(stream, x) })
}

// Inject: stream g of wide += inj[g] * y.
func (b *Backend) Inject(wide, y, inj ops.Tensor) {
	n := streams(wide, y)
	fit(n > 0 && inj.Rows == wide.Rows && inj.Cols == n, "Inject", wide, y, inj)
	gain := inj.Floats()
	b.eachStream(wide, y, func(stream, y []float32, r, g int) { b.vector.addScaled(stream, y, gain[r*n+g]) })
}

// MixStreams: x = mean over streams of u * z, streams ascending.
func (b *Backend) MixStreams(x, u, z ops.Tensor) {
	n := streams(z, x)
	fit(n > 0 && ops.Same(u, z), "MixStreams", x, u, z)
	out, us, zs, h := x.Floats(), u.Floats(), z.Floats(), x.Cols
	b.parallel(x.Rows, grain(2*n*h), func(_ *scratch, from, to int) {
		for r := from; r < to; r++ {
			y := out[r*h : (r+1)*h]
			clear(y)
			for i := r * n * h; i < (r+1)*n*h; i += h {
				b.vector.addProduct(y, us[i:i+h], zs[i:i+h])
			}
			for i, v := range y {
				y[i] = v / float32(n)
			}
		}
	})
}
