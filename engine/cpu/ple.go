package cpu

import (
	"fmt"
	"math"

	"lector/engine/ops"
)

// Gather: e[r] = the rows ids[r*n : (r+1)*n] of the table side by side.
func (b *Backend) Gather(e ops.Tensor, t ops.Table, ids []int64) {
	fit(t.Dim > 0 && e.Rows*e.Cols == len(ids)*t.Dim && e.Cols%t.Dim == 0, "Gather", e)
	each := shapes().FitTable(&t)
	for _, id := range ids {
		if id < 0 || id >= int64(t.Rows) {
			panic(fmt.Sprintf("cpu: Gather: row %d outside [0, %d)", id, t.Rows))
		}
	}
	out := e.Floats()
	b.parallel(len(ids), grain(t.Dim), func(_ *scratch, from, to int) {
		for i := from; i < to; i++ {
			id := int(ids[i])
			plain.decodeRow(out[i*t.Dim:(i+1)*t.Dim], &t.Shards[id/each], id%each)
		}
	})
}

// PLEGate: s_g = key_g . query_g / sqrt(h); v_g = sigmoid(sign(s) sqrt(max(|s|, 1e-6))) * val, sign(0) = 0.
func (b *Backend) PLEGate(v, key, query, val ops.Tensor) {
	fit(streams(key, val) > 0 && ops.Same(key, query, v), "PLEGate", v, key, query, val)
	n, h := key.Cols/val.Cols, val.Cols
	keys, queries, vals, out := key.Floats(), query.Floats(), val.Floats(), v.Floats()
	root := math.Sqrt(float64(h))
	b.parallel(key.Rows*n, grain(4*h), func(_ *scratch, from, to int) {
		for i := from; i < to; i++ {
			gate := sigmoid(signedRoot(float32(b.sumProducts(keys[i*h:(i+1)*h], queries[i*h:(i+1)*h]) / root)))
			in, y := vals[i/n*h:(i/n+1)*h], out[i*h:(i+1)*h]
			for c, x := range in {
				y[c] = gate * x
			}
		}
	})
}

// signedRoot is sign(s) sqrt(max(|s|, 1e-6)); NaN stays NaN.
func signedRoot(s float32) float32 {
	switch {
	case s > 0:
		return sqrt32(max(s, 1e-6))
	case s < 0:
		return -sqrt32(max(-s, 1e-6))
	}
	return s
}

// dot64 adds in ascending order; the float64 product of two float32 is exact.
func dot64(a, b []float32) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += float64(float64(v) * float64(b[i]))
	}
	return sum
}
