package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// stripRows is how many rows of x stand side by side in a strip: as many as kernels have registers for.
func (w isa) stripRows() int {
	if w.bytes == 64 {
		return 8
	}
	return 6
}

// strip is rows x (vecs registers) chains over a strip: however long the rows are, their numbers come from one stream.
func strip(w isa, rows, vecs int) {
	name := fmt.Sprintf("strip%sx%dx%d", w.name, rows, vecs)
	kernel(name, "func(c *float32, ldc int, x, panel *float32, n int, first bool)")
	Doc(fmt.Sprintf("%s adds x[%d*i+r] * panel[%d*i+j] to c[r*ldc+j], fused, i < n ascending, for r < %d and j < %d.", name, w.stripRows(), lanes, rows, vecs*w.bytes/4),
		"c starts at zero if first. "+w.needs)
	c, acc := newGrid(load("c"), load("ldc"), rows), make([][]VecVirtual, rows)
	for r := range rows { // they are written at the end, and often far away
		for v := range vecs {
			if v*w.bytes%64 == 0 {
				PREFETCHT0(c.at(r, v*w.bytes))
			}
			acc[r] = append(acc[r], w.reg())
		}
	}
	x, panel, n := load("x"), load("panel"), load("n")
	begin(w, acc)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	ws := make([]VecVirtual, vecs)
	for v := range ws {
		ws[v] = w.reg()
		VMOVUPS(Mem{Base: panel, Disp: v * w.bytes}, ws[v])
	}
	for r := range acc {
		xv := w.reg()
		VBROADCASTSS(Mem{Base: x, Disp: 4 * r}, xv)
		for v, a := range acc[r] {
			VFMADD231PS(ws[v], xv, a)
		}
	}
	ADDQ(U32(4*lanes), panel)
	ADDQ(Imm(uint64(4*w.stripRows())), x)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	for r := range acc {
		for v := range acc[r] {
			VMOVUPS(acc[r][v], c.at(r, v*w.bytes))
		}
	}
	VZEROUPPER()
	RET()
}

// pack makes a strip of rows. Rows i and i+4 share a register; each half of it is transposed four by four. Of six rows a
// register has two numbers too many, which the next one covers.
func pack(strip int) {
	name, more := fmt.Sprintf("pack256x%d", strip), "It needs AVX."
	if strip < 8 {
		more = "Two floats behind are overwritten. " + more
	}
	kernel(name, "func(dst *float32, rows **float32, n int)")
	Doc(fmt.Sprintf("%s sets dst[%d*i+r] to element i of row r for r < %d and i < n, n a multiple of 4. %s", name, strip, strip, more))
	table := load("rows")
	rows := make([]GPVirtual, strip)
	for r := range rows {
		rows[r] = GP64()
		MOVQ(Mem{Base: table, Disp: 8 * r}, rows[r])
	}
	dst, n, at := load("dst"), load("n"), GP64()
	XORQ(at, at)
	Label("loop")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	in := make([]VecVirtual, 4)
	for r := range in {
		if r+4 >= strip {
			in[r] = YMM()
			VMOVUPS(Mem{Base: rows[r], Index: at, Scale: 4}, in[r].AsX())
			continue
		}
		low := XMM()
		in[r] = YMM()
		VMOVUPS(Mem{Base: rows[r], Index: at, Scale: 4}, low)
		VINSERTF128(Imm(1), Mem{Base: rows[r+4], Index: at, Scale: 4}, low.AsY(), in[r])
	}
	transpose4(in, func(i int, v VecVirtual) { VMOVUPS(v, Mem{Base: dst, Disp: 4 * strip * i}) })
	ADDQ(U32(uint32(16*strip)), dst)
	ADDQ(Imm(4), at)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// transpose4 transposes the 4x4 block in each half of four registers, and keeps what it has of column after column.
func transpose4(in []VecVirtual, keep func(i int, v VecVirtual)) {
	pairs := make([]VecVirtual, 4)
	for i := range pairs {
		pairs[i] = YMM()
	}
	VUNPCKLPS(in[1], in[0], pairs[0])
	VUNPCKHPS(in[1], in[0], pairs[1])
	VUNPCKLPS(in[3], in[2], pairs[2])
	VUNPCKHPS(in[3], in[2], pairs[3])
	for i := range 4 {
		out := YMM()
		if i%2 == 0 {
			VUNPCKLPD(pairs[2+i/2], pairs[i/2], out)
		} else {
			VUNPCKHPD(pairs[2+i/2], pairs[i/2], out)
		}
		keep(i, out)
	}
}
