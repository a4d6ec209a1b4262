package cpu

import "golang.org/x/sys/cpu"

// widest is the largest set of kernels that this processor and its system can run.
func widest() vector {
	switch {
	case cpu.X86.HasAVX512F:
		return avx512
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C:
		return avx2
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
	switch v {
	case avx512:
		for _, half := range []int{0, lanes / 2} {
			transpose512(&panel[half], &rows[half*n], n)
		}
		return
	case avx2:
		for part := 0; part < lanes; part += 8 {
			transpose256(&panel[part], &rows[part*n], n)
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
	n := v.wide(len(dst))
	switch {
	case n == 0:
	case v == avx512:
		unpack4x512(&dst[0], &codes[0], n, scale, bias)
	default:
		unpack4x256(&dst[0], &codes[0], n, scale, bias)
	}
	return n
}

// nibbles says that nibbleDots has kernels.
func (v vector) nibbles() bool { return v >= avx2 }

// nibbleDots sets c[r*nibbleLanes+j] to the product of row xs[r] and row j of w for r < rows.
func (v vector) nibbleDots(c *[fewRows * nibbleLanes]float32, xs *[fewRows]*float32, w *nibbleRows, rows int) {
	groups, words := len(w.scales)/nibbleLanes, w.group/8
	if v == avx512 {
		switch rows {
		case 4:
			nibbleDots512x4(&c[0], &xs[0], &w.codes[0], &w.at[0], &w.scales[0], &w.biases[0], groups, words)
		case 2:
			nibbleDots512x2(&c[0], &xs[0], &w.codes[0], &w.at[0], &w.scales[0], &w.biases[0], groups, words)
		default:
			nibbleDots512x1(&c[0], &xs[0], &w.codes[0], &w.at[0], &w.scales[0], &w.biases[0], groups, words)
		}
		return
	}
	for _, half := range []int{0, nibbleLanes / 2} {
		switch rows {
		case 4:
			nibbleDots256x4(&c[half], &xs[0], &w.codes[0], &w.at[half], &w.scales[half], &w.biases[half], groups, words)
		case 2:
			nibbleDots256x2(&c[half], &xs[0], &w.codes[0], &w.at[half], &w.scales[half], &w.biases[half], groups, words)
		default:
			nibbleDots256x1(&c[half], &xs[0], &w.codes[0], &w.at[half], &w.scales[half], &w.biases[half], groups, words)
		}
	}
}
