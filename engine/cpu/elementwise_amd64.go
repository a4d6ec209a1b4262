package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// wide is how many of n elements the kernels take that only the larger sets have; the rest is for plain Go.
func (v vector) wide(n int) int {
	if v < avx2 {
		return 0
	}
	return n &^ 15
}

// widen decodes as many bf16 values as whole registers hold, and says how many.
func (v vector) widen(dst []float32, data []byte) int {
	n := v.wide(len(dst))
	switch {
	case n == 0:
	case v == avx512:
		widen512(&dst[0], &data[0], n)
	default:
		widen256(&dst[0], &data[0], n)
	}
	return n
}

func (v vector) sigmoidWide(x []float32, scale, gain float32) int {
	n := v.wide(len(x))
	switch {
	case n == 0:
	case v == avx512:
		sigmoid512(&x[0], n, scale, gain)
	default:
		sigmoid256(&x[0], n, scale, gain)
	}
	return n
}

func (v vector) siluWide(x []float32, scale float32) int {
	n := v.wide(len(x))
	switch {
	case n == 0:
	case v == avx512:
		silu512(&x[0], n, scale)
	default:
		silu256(&x[0], n, scale)
	}
	return n
}

func (v vector) swiGLUWide(y, gate, up []float32) int {
	n := v.wide(len(y))
	switch {
	case n == 0:
	case v == avx512:
		swiGLU512(&y[0], &gate[0], &up[0], n)
	default:
		swiGLU256(&y[0], &gate[0], &up[0], n)
	}
	return n
}

func (v vector) expBelowWide(x []float32, top float32) int {
	n := v.wide(len(x))
	switch {
	case n == 0:
	case v == avx512:
		expBelow512(&x[0], n, top)
	default:
		expBelow256(&x[0], n, top)
	}
	return n
}

func (v vector) addScaledWide(y, x []float32, w float32) int {
	n := v.wide(len(y))
	switch {
	case n == 0:
	case v == avx512:
		addScaled512(&y[0], &x[0], n, w)
	default:
		addScaled256(&y[0], &x[0], n, w)
	}
	return n
}

func (v vector) addProductWide(y, u, z []float32) int {
	n := v.wide(len(y))
	switch {
	case n == 0:
	case v == avx512:
		addProduct512(&y[0], &u[0], &z[0], n)
	default:
		addProduct256(&y[0], &u[0], &z[0], n)
	}
	return n
}

func (v vector) normScaleWide(y, x, scale []float32, r float32) int {
	n := v.wide(len(y))
	switch {
	case n == 0:
	case v == avx512:
		normScale512(&y[0], &x[0], &scale[0], n, r)
	default:
		normScale256(&y[0], &x[0], &scale[0], n, r)
	}
	return n
}

func (v vector) softmaxWide(x []float32, scale, top float32, l *lanes16) int {
	n := v.wide(len(x))
	switch {
	case n == 0:
	case v == avx512:
		softmax512(&x[0], n, scale, top, &l[0])
	default:
		softmax256(&x[0], n, scale, top, &l[0])
	}
	return n
}

func (v vector) dotsWide(x, y []float32, l *lanes16) int {
	n := v.wide(len(x))
	switch {
	case n == 0:
	case v == avx512:
		dots64x512(&x[0], &y[0], n, &l[0])
	default:
		dots64x256(&x[0], &y[0], n, &l[0])
	}
	return n
}

func (v vector) largestWide(x []float32, top *[16]float32) int {
	n := v.wide(len(x))
	switch {
	case n == 0:
	case v == avx512:
		largest512(&x[0], n, &top[0])
	default:
		largest256(&x[0], n, &top[0])
	}
	return n
}

func (v vector) sumPositivesWide(y []float32, x fma.Rows, heads int, scale float32) int {
	n := v.wide(len(y))
	if n == 0 {
		return 0
	}
	_ = x.Data[(heads-1)*x.Step+n-1]
	if v == avx512 {
		positives512(&y[0], &x.Data[0], x.Step, heads, n, scale)
	} else {
		positives256(&y[0], &x.Data[0], x.Step, heads, n, scale)
	}
	return n
}

// widenHalves decodes as many halves as whole registers hold, and says how many.
func (v vector) widenHalves(dst []float32, halves []uint16) int {
	n := v.wide(len(dst))
	switch {
	case n == 0:
	case v == avx512:
		widenHalves512(&dst[0], &halves[0], n)
	default:
		widenHalves256(&dst[0], &halves[0], n)
	}
	return n
}

// widenCodes decodes as many whole groups of codes as there are, and says how many codes.
func (v vector) widenCodes(dst []float32, codes []int8, scales []uint16) int {
	n := len(dst) / ops.RowGroup
	switch {
	case v < avx2 || n == 0:
		return 0
	case v == avx512:
		widenCodes512(&dst[0], &codes[0], &scales[0], n)
	default:
		widenCodes256(&dst[0], &codes[0], &scales[0], n)
	}
	return n * ops.RowGroup
}

// mixWide mixes the columns that make whole registers, and says how many.
func (v vector) mixWide(y []float32, u, z fma.Rows, streams int, share float32) int {
	n := v.wide(len(y))
	if n == 0 {
		return 0
	}
	_, _ = u.Data[(streams-1)*u.Step+n-1], z.Data[(streams-1)*z.Step+n-1]
	if v == avx512 {
		mix512(&y[0], &u.Data[0], u.Step, &z.Data[0], z.Step, streams, n, share)
	} else {
		mix256(&y[0], &u.Data[0], u.Step, &z.Data[0], z.Step, streams, n, share)
	}
	return n
}
