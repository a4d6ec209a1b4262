package bfp

import (
	"golang.org/x/sys/cpu"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// Sets are those that this processor can run, the slowest first.
func Sets() []Set {
	sets := []Set{Plain}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, AVX2)
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI {
		sets = append(sets, VNNI)
	}
	return sets
}

// split packs a row.
func (s Set) split(to []byte, x []float32, order *[16]byte, group int) {
	switch s {
	case Plain:
		splitPlain(to, x, order, group)
	case AVX2:
		split256(&to[0], &x[0], &order[0], group, len(x)/group)
	default:
		split512(&to[0], &x[0], &order[0], group, len(x)/group)
	}
}

type spreadFunc = func(to *byte, words *float32, step, periods int)

// spread unpacks the codes of 16 outputs.
func (s Set) spread(to []byte, words fma.Rows, m *ops.Matrix) {
	f := [...]spreadFunc{2: spread512x2, 3: spread512x3, 4: spread512x4, 6: spread512x6, 8: spread512x8}[m.Bits]
	if s == AVX2 {
		f = [...]spreadFunc{2: spread256x2, 3: spread256x3, 4: spread256x4, 6: spread256x6, 8: spread256x8}[m.Bits]
	}
	f(&to[0], &words.Data[0], words.Step, m.In/fma.Period(m.Bits))
}

type productFunc = func(c *float32, ldc int, x *byte, ldx int, panel *byte, sides *float32, group, groups int)

// product sets c [rows, 32] to the products of 1, 2 or 4 rows of x from `first` on.
func (s Set) product(c fma.Rows, rows int, x *Packed, first int, w *Panel) {
	if s == Plain {
		productPlain(c, rows, x, first, w)
		return
	}
	f, each := [...]productFunc{1: product512x1, 2: product512x2, 4: product512x4}[rows], rows
	if s == AVX2 {
		each = min(rows, 2)
		f = narrowProducts(w.bits)[each-1]
	}
	for r := 0; r < rows; r += each {
		f(&c.Data[r*c.Step], c.Step, &x.data[(first+r)*x.row()], x.row(), &w.codes[0], &w.sides[0], x.group, x.groups)
	}
}

// narrowProducts are those of 1 and 2 rows, with codes of so many bits.
func narrowProducts(bits int) [2]productFunc {
	switch {
	case bits <= 4:
		return [2]productFunc{product256x4x1, product256x4x2}
	case bits <= 6:
		return [2]productFunc{product256x6x1, product256x6x2}
	}
	return [2]productFunc{product256x8x1, product256x8x2}
}

// few multiplies 1, 2 or 4 rows from `first` on with tiles; AVX2 knows only one.
func (s Set) few(rows int, c fma.Rows, x *Packed, first int, w *tiles) {
	if s == AVX2 {
		each := min(rows, 2)
		f := narrowFew(w.bits)[each-1]
		for r := 0; r < rows; r += each {
			f(&c.Data[r*c.Step], c.Step, &x.data[(first+r)*x.row()], x.row(), &w.codes[0], &w.scales[0], &w.biases[0], x.group, x.groups)
		}
		return
	}
	f := fewKernel(w.bits, rows)
	wide := FewOutputs
	if rows == 4 {
		wide /= 2
	}
	for j := 0; j < FewOutputs; j += wide {
		f(&c.Data[j], c.Step, &x.data[first*x.row()], x.row(), &w.codes[4*j], &w.scales[2*j], &w.biases[2*j], x.group, x.groups, x.group/fma.Period(w.bits), w.n)
	}
}

type fewFunc = func(c *float32, ldc int, x *byte, ldx int, words, scales, biases *byte, group, groups, periods, tiles int)

// fewKernel is that of VNNI for 1, 2 or 4 rows.
func fewKernel(bits, rows int) fewFunc {
	switch 8*bits + rows {
	case 8*4 + 1:
		return few512x4x1
	case 8*4 + 2:
		return few512x4x2
	case 8*4 + 4:
		return few512x4x4
	case 8*6 + 1:
		return few512x6x1
	case 8*6 + 2:
		return few512x6x2
	case 8*6 + 4:
		return few512x6x4
	case 8*8 + 1:
		return few512x8x1
	case 8*8 + 2:
		return few512x8x2
	}
	return few512x8x4
}

type narrowFunc = func(c *float32, ldc int, x *byte, ldx int, words, scales, biases *byte, group, groups int)

// narrowFew are those of AVX2 for 1 and 2 rows.
func narrowFew(bits int) [2]narrowFunc {
	switch bits {
	case 4:
		return [2]narrowFunc{few256x4x1, few256x4x2}
	case 6:
		return [2]narrowFunc{few256x6x1, few256x6x2}
	}
	return [2]narrowFunc{few256x8x1, few256x8x2}
}
