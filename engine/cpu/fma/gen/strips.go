package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// stripRows is how many rows of x stand side by side in a strip.
const stripRows = 8

// strip is rows x (vecs registers) chains over a strip: however long the rows are, their numbers come from one stream.
func strip(rows, vecs int) {
	name := fmt.Sprintf("strip512x%dx%d", rows, vecs)
	kernel(name, "func(c *float32, ldc int, x, panel *float32, n int, first bool)")
	Doc(fmt.Sprintf("%s adds x[%d*i+r] * panel[%d*i+j] to c[r*ldc+j], fused, i < n ascending, for r < %d and j < %d.", name, stripRows, lanes, rows, 16*vecs),
		"c starts at zero if first. It needs AVX-512F.")
	c, acc := newGrid(load("c"), load("ldc"), rows), make([][]VecVirtual, rows)
	for r := range rows { // they are written at the end, and often far away
		for v := range vecs {
			PREFETCHT0(c.at(r, 64*v))
			acc[r] = append(acc[r], ZMM())
		}
	}
	x, panel, n := load("x"), load("panel"), load("n")
	begin(wide, acc)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	ws := make([]VecVirtual, vecs)
	for v := range ws {
		ws[v] = ZMM()
		VMOVUPS(Mem{Base: panel, Disp: 64 * v}, ws[v])
	}
	for r := range acc {
		xv := ZMM()
		VBROADCASTSS(Mem{Base: x, Disp: 4 * r}, xv)
		for v, a := range acc[r] {
			VFMADD231PS(ws[v], xv, a)
		}
	}
	ADDQ(U32(4*lanes), panel)
	ADDQ(Imm(4*stripRows), x)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	for r := range acc {
		for v := range acc[r] {
			VMOVUPS(acc[r][v], c.at(r, 64*v))
		}
	}
	VZEROUPPER()
	RET()
}

// pack makes a strip of rows. Rows i and i+4 share a register; each half of it is transposed four by four.
func pack() {
	kernel("pack256x8", "func(dst *float32, rows **float32, n int)")
	Doc("pack256x8 sets dst[8*i+r] to element i of row r for r < 8 and i < n, n a multiple of 4. It needs AVX.")
	table := load("rows")
	rows := make([]GPVirtual, stripRows)
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
		low := XMM()
		in[r] = YMM()
		VMOVUPS(Mem{Base: rows[r], Index: at, Scale: 4}, low)
		VINSERTF128(Imm(1), Mem{Base: rows[r+4], Index: at, Scale: 4}, low.AsY(), in[r])
	}
	transpose4(in, func(i int, v VecVirtual) { VMOVUPS(v, Mem{Base: dst, Disp: 32 * i}) })
	ADDQ(U32(128), dst)
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
