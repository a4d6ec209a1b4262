package bfp

import (
	"golang.org/x/sys/cpu"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// Here says that this processor has AVX-512 VNNI.
func Here() bool {
	return cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI
}

// split packs a row.
func (s Set) split(to []byte, x []float32, order *[16]byte, group int) {
	if s == Plain {
		splitPlain(to, x, order, group)
		return
	}
	split512(&to[0], &x[0], &order[0], group, len(x)/group)
}

// spread unpacks the codes of 16 outputs.
func (s Set) spread(to []byte, words fma.Rows, m *ops.Matrix) {
	f := [...]func(panel *byte, words *float32, step, periods int){2: spread512x2, 3: spread512x3, 4: spread512x4, 6: spread512x6, 8: spread512x8}[m.Bits]
	f(&to[0], &words.Data[0], words.Step, m.In/fma.Period(m.Bits))
}

// product sets c [rows, 32] to the products of 1, 2 or 4 rows of x from `first` on.
func (s Set) product(c fma.Rows, rows int, x *Packed, first int, w *Panel) {
	if s == Plain {
		productPlain(c, rows, x, first, w)
		return
	}
	f := [...]func(c *float32, ldc int, x *byte, ldx int, panel *byte, sides *float32, group, groups int){1: product512x1, 2: product512x2, 4: product512x4}[rows]
	f(&c.Data[0], c.Step, &x.data[first*x.row()], x.row(), &w.codes[0], &w.sides[0], x.group, x.groups)
}

type fewFunc = func(c *float32, ldc int, x *byte, ldx int, words, scales, biases *byte, group, groups, periods int)

// few multiplies 1, 2 or 4 rows from `first` on with a tile.
func (s Set) few(rows int, c fma.Rows, x *Packed, first int, w tile) {
	f := [...][5]fewFunc{
		4: {1: few512x4x1, 2: few512x4x2, 4: few512x4x4},
		6: {1: few512x6x1, 2: few512x6x2, 4: few512x6x4},
		8: {1: few512x8x1, 2: few512x8x2, 4: few512x8x4},
	}[w.bits][rows]
	wide := FewOutputs
	if rows == 4 {
		wide /= 2
	}
	for j := 0; j < FewOutputs; j += wide {
		f(&c.Data[j], c.Step, &x.data[first*x.row()], x.row(), &w.codes[4*j], &w.scales[2*j], &w.biases[2*j], x.group, x.groups, x.group/fma.Period(w.bits))
	}
}
