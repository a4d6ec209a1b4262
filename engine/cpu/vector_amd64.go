package cpu

import (
	"golang.org/x/sys/cpu"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// widest is the largest set of kernels that this processor and its system can run.
func widest() vector {
	switch {
	case cpu.X86.HasAVX512F:
		return avx512
	case cpu.X86.HasAVX:
		return avx
	}
	return plain
}

// rows is how many rows of x a kernel takes at most.
func (v vector) rows() int {
	if v == avx512 {
		return 8
	}
	return 4
}

// dots sets c[r*lanes+j] to the product of row xs[r] [n] and column j of panel [n, lanes] for r < rows.
func (v vector) dots(c *[blockRows * lanes]float32, xs *[blockRows]*float32, panel []float32, n, rows int) {
	if v == avx512 {
		switch rows {
		case 8:
			dots512x8(&c[0], &xs[0], &panel[0], n)
		case 4:
			dots512x4(&c[0], &xs[0], &panel[0], n)
		case 2:
			dots512x2(&c[0], &xs[0], &panel[0], n)
		default:
			dots512x1(&c[0], &xs[0], &panel[0], n)
		}
		return
	}
	for _, half := range []int{0, lanes / 2} {
		switch rows {
		case 4:
			dots256x4(&c[half], &xs[0], &panel[half], n)
		case 2:
			dots256x2(&c[half], &xs[0], &panel[half], n)
		default:
			dots256x1(&c[half], &xs[0], &panel[half], n)
		}
	}
}

// transpose turns lanes rows of n floats, n a multiple of 16, into a panel [n, lanes].
func (v vector) transpose(panel, rows []float32, n int) {
	if v == avx512 {
		for _, half := range []int{0, lanes / 2} {
			transpose512(&panel[half], &rows[half*n], n)
		}
		return
	}
	for k := 0; k < n; k += 8 { // a few lines of the panel at a time stay in the nearest cache
		for j := range lanes {
			row := rows[j*n+k : j*n+k+8]
			for i, w := range row {
				panel[(k+i)*lanes+j] = w
			}
		}
	}
}

// unpack4 decodes as many 4-bit codes as whole registers hold, and says how many.
func (v vector) unpack4(dst []float32, codes []byte, scale, bias float32) int {
	n := len(dst) &^ 15
	if v != avx512 || n == 0 {
		return 0
	}
	unpack4x512(&dst[0], &codes[0], n, scale, bias)
	return n
}

// nibbleDots sets c[r*nibbleLanes+j] to the product of row xs[r] and row j of w for r < rows.
func (v vector) nibbleDots(c *[fewRows * nibbleLanes]float32, xs *[fewRows]*float32, w *nibbleRows, rows int) {
	groups, words := len(w.scales)/nibbleLanes, w.group/8
	switch rows {
	case 4:
		nibbleDots512x4(&c[0], &xs[0], &w.codes[0], &w.at[0], &w.scales[0], &w.biases[0], groups, words)
	case 2:
		nibbleDots512x2(&c[0], &xs[0], &w.codes[0], &w.at[0], &w.scales[0], &w.biases[0], groups, words)
	default:
		nibbleDots512x1(&c[0], &xs[0], &w.codes[0], &w.at[0], &w.scales[0], &w.biases[0], groups, words)
	}
}

// widen decodes as many bf16 values as whole registers hold, and says how many.
func (v vector) widen(dst []float32, data []byte) int {
	n := len(dst) &^ 15
	if v != avx512 || n == 0 {
		return 0
	}
	widen512(&dst[0], &data[0], n)
	return n
}

// wide is how many of n elements the 512-bit kernels take; the rest is for plain Go.
func (v vector) wide(n int) int {
	if v != avx512 {
		return 0
	}
	return n &^ 15
}

func (v vector) sigmoidWide(x []float32, scale, gain float32) int {
	n := v.wide(len(x))
	if n > 0 {
		sigmoid512(&x[0], n, scale, gain)
	}
	return n
}

func (v vector) siluWide(x []float32, scale float32) int {
	n := v.wide(len(x))
	if n > 0 {
		silu512(&x[0], n, scale)
	}
	return n
}

func (v vector) swiGLUWide(y, gate, up []float32) int {
	n := v.wide(len(y))
	if n > 0 {
		swiGLU512(&y[0], &gate[0], &up[0], n)
	}
	return n
}

func (v vector) expBelowWide(x []float32, top float32) int {
	n := v.wide(len(x))
	if n > 0 {
		expBelow512(&x[0], n, top)
	}
	return n
}

func (v vector) addScaledWide(y, x []float32, w float32) int {
	n := v.wide(len(y))
	if n > 0 {
		addScaled512(&y[0], &x[0], n, w)
	}
	return n
}

func (v vector) addProductWide(y, u, z []float32) int {
	n := v.wide(len(y))
	if n > 0 {
		addProduct512(&y[0], &u[0], &z[0], n)
	}
	return n
}

func (v vector) normScaleWide(y, x, scale []float32, r float32) int {
	n := v.wide(len(y))
	if n > 0 {
		normScale512(&y[0], &x[0], &scale[0], n, r)
	}
	return n
}

func (v vector) softmaxWide(x []float32, scale, top float32, l *lanes16) int {
	n := v.wide(len(x))
	if n > 0 {
		softmax512(&x[0], n, scale, top, &l[0])
	}
	return n
}

func (v vector) dotsWide(x, y []float32, l *lanes16) int {
	n := v.wide(len(x))
	if n > 0 {
		dots64x512(&x[0], &y[0], n, &l[0])
	}
	return n
}

func (v vector) largestWide(x []float32, top *[16]float32) int {
	n := v.wide(len(x))
	if n > 0 {
		largest512(&x[0], n, &top[0])
	}
	return n
}

func (v vector) sumPositivesWide(y []float32, x fma.Rows, heads int, scale float32) int {
	n := v.wide(len(y))
	if n > 0 {
		_ = x.Data[(heads-1)*x.Step+n-1]
		positives512(&y[0], &x.Data[0], x.Step, heads, n, scale)
	}
	return n
}

// scoreBlocks16 scores as many tokens as make whole blocks of 16, and says how many.
func (v vector) scoreBlocks16(scores []float32, qs [][]float32, keys []float32, tokens []int32, stride int) int {
	n, dim := v.wide(len(tokens)), len(qs[0])
	if n == 0 || dim%16 != 0 {
		return 0
	}
	var c [headsPerItem * 16]float32
	var q [headsPerItem]*float32
	for i := range q {
		q[i] = &qs[min(i, len(qs)-1)][0]
	}
	for t := 0; t < n; t += 16 {
		switch len(qs) {
		case 1:
			scores512x1(&c[0], &q[0], &keys[0], &tokens[t], stride, dim)
		case 2:
			scores512x2(&c[0], &q[0], &keys[0], &tokens[t], stride, dim)
		default:
			scores512x4(&c[0], &q[0], &keys[0], &tokens[t], stride, dim)
		}
		for i := range qs {
			copy(scores[i*len(tokens)+t:][:16], c[16*i:])
		}
	}
	return n
}

// widenHalves decodes as many halves as whole registers hold, and says how many.
func (v vector) widenHalves(dst []float32, halves []uint16) int {
	n := v.wide(len(dst))
	if n > 0 {
		widenHalves512(&dst[0], &halves[0], n)
	}
	return n
}

// widenCodes decodes as many whole groups of codes as there are, and says how many codes.
func (v vector) widenCodes(dst []float32, codes []int8, scales []uint16) int {
	n := len(dst) / ops.RowGroup
	if v != avx512 || n == 0 {
		return 0
	}
	widenCodes512(&dst[0], &codes[0], &scales[0], n)
	return n * ops.RowGroup
}

// addColumns adds to the columns that make whole registers, and says how many.
func (v vector) addColumns(out, weights, values []float32, tokens []int32, stride int) int {
	n, at := v.wide(len(out)), 0
	if len(tokens) == 0 {
		return 0
	}
	for at < n {
		switch left := n - at; {
		case left >= 64:
			gatherAdd512x4(&out[at], &weights[0], &values[at], &tokens[0], len(tokens), stride)
			at += 64
		case left >= 32:
			gatherAdd512x2(&out[at], &weights[0], &values[at], &tokens[0], len(tokens), stride)
			at += 32
		default:
			gatherAdd512x1(&out[at], &weights[0], &values[at], &tokens[0], len(tokens), stride)
			at += 16
		}
	}
	return n
}

// sumColumns sums the columns that make whole registers, and says how many.
func (v vector) sumColumns(out, weights, values []float32, tokens []int32, stride int) int {
	n, at := v.wide(len(out)), 0
	if len(tokens) == 0 {
		return 0
	}
	for at < n {
		switch left := n - at; {
		case left >= 64:
			gatherSum512x4(&out[at], &weights[0], &values[at], &tokens[0], len(tokens), stride)
			at += 64
		case left >= 32:
			gatherSum512x2(&out[at], &weights[0], &values[at], &tokens[0], len(tokens), stride)
			at += 32
		default:
			gatherSum512x1(&out[at], &weights[0], &values[at], &tokens[0], len(tokens), stride)
			at += 16
		}
	}
	return n
}

// decayColumns is decayAndRead where the columns make one kernel's registers.
func (v vector) decayColumns(s, t, k []float32, g float32) bool {
	if v != avx512 || len(k) == 0 {
		return false
	}
	switch n := len(t); n {
	case 64:
		decay512x4(&s[0], &t[0], &k[0], len(k), n, g)
	case 32:
		decay512x2(&s[0], &t[0], &k[0], len(k), n, g)
	case 16:
		decay512x1(&s[0], &t[0], &k[0], len(k), n, g)
	default:
		return false
	}
	return true
}

// updateColumns is updateAndRead where the columns make one kernel's registers.
func (v vector) updateColumns(s, o, delta, k, q []float32) bool {
	if v != avx512 || len(k) == 0 {
		return false
	}
	switch n := len(o); n {
	case 64:
		update512x4(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	case 32:
		update512x2(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	case 16:
		update512x1(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	default:
		return false
	}
	return true
}

// mixWide mixes the columns that make whole registers, and says how many.
func (v vector) mixWide(y []float32, u, z fma.Rows, streams int, share float32) int {
	n := v.wide(len(y))
	if n > 0 {
		_, _ = u.Data[(streams-1)*u.Step+n-1], z.Data[(streams-1)*z.Step+n-1]
		mix512(&y[0], &u.Data[0], u.Step, &z.Data[0], z.Step, streams, n, share)
	}
	return n
}
