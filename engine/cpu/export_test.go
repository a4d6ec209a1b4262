package cpu

import (
	"lector/engine/cpu/amx"
	"lector/engine/cpu/bfp"
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// The elementary functions, for tests of their error and of their bits.
var (
	Exp32      = exp32
	Exp64      = exp64
	Log64      = log64
	Softplus   = softplus
	Sincos     = sincos
	Sigmoid32  = sigmoid
	SiLU32     = silu
	HalfWiden  = fma.Widen
	HalfNarrow = toHalf
	SelectBest = func(scores []float32, k int) []int32 {
		var b chooser
		return b.choose(nil, scores, k)
	}
	Parallel = func(b *Backend, n, grain int, work func(from, to int)) {
		b.parallel(n, grain, func(_ *scratch, from, to int) { work(from, to) })
	}

	// Narrow makes b use kernel set v, which is none above the widest.
	Narrow = func(b *Backend, v int) *Backend {
		b.vector, b.chains = min(vector(v), widest()), fma.Sets()[min(v, len(fma.Sets())-1)]
		if v < Widest() {
			b.tiles = amx.Plain
		}
		b.integers = bfp.Sets()[min(v, len(bfp.Sets())-1)]
		return b
	}
	// Widest is the largest kernel set of this processor; sets count from 0, plain Go.
	Widest = func() int { return max(int(widest()), len(fma.Sets())-1) }
)

// ReadRows is all of a cache as floats.
func ReadRows(c ops.Cache) []float32 {
	r, out := newCachedRows(c), make([]float32, c.Rows*c.Heads*c.Dim)
	if c.Format == ops.RowsF32 {
		copy(out, r.floats)
		return out
	}
	for i := range c.Rows * c.Heads {
		r.head(plain, out[i*c.Dim:(i+1)*c.Dim], i/c.Heads, i%c.Heads)
	}
	return out
}
