package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// transpose turns a register of rows into as many columns of a panel.
func (w width) transpose() {
	kernel(w.name("transpose"), "func(panel *float32, rows *float32, n int)")
	Doc(fmt.Sprintf("%s sets panel[k*32+j] = rows[j*n+k] for j < %d and k < n; n is a multiple of 16.", w.name("transpose"), w.floats()), w.needs())
	panel, src, n := Load(Param("panel"), GP64()), Load(Param("rows"), GP64()), Load(Param("n"), GP64())
	stride, left := GP64(), GP64()
	MOVQ(n, stride)
	SHLQ(Imm(2), stride)
	MOVQ(n, left)
	Label("loop")
	CMPQ(left, Imm(uint64(w.floats())))
	JL(LabelRef("done"))
	at := GP64()
	MOVQ(src, at)
	in := make([]VecVirtual, w.floats())
	for i := range in {
		in[i] = w.register()
		VMOVUPS(Mem{Base: at}, in[i])
		ADDQ(stride, at)
	}
	out := w.transposed(in)
	for i := range out {
		VMOVUPS(out[i], Mem{Base: panel, Disp: 4 * lanes * i})
	}
	ADDQ(Imm(uint64(w)), src)
	ADDQ(U32(4*lanes*w.floats()), panel)
	SUBQ(Imm(uint64(w.floats())), left)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// transposed transposes a square block in registers, in rounds: pairs, fours, then blocks of four lanes.
func (w width) transposed(in []VecVirtual) []VecVirtual {
	b := w.fours(in)
	if w == zmm {
		return sixteens(b)
	}
	out := w.registers(8)
	for j := range 4 {
		VPERM2F128(Imm(0x20), b[4+j], b[j], out[j])
		VPERM2F128(Imm(0x31), b[4+j], b[j], out[4+j])
	}
	return out
}

// fours are the first two rounds: register 4g+j holds, in lane block q, column 4q+j of rows 4g..4g+3.
func (w width) fours(in []VecVirtual) []VecVirtual {
	a := make([]VecVirtual, len(in))
	for i := 0; i < len(in); i += 2 {
		a[i], a[i+1] = w.register(), w.register()
		VUNPCKLPS(in[i+1], in[i], a[i])
		VUNPCKHPS(in[i+1], in[i], a[i+1])
	}
	b := make([]VecVirtual, len(in))
	for i := 0; i < len(in); i += 4 {
		for j := range 4 {
			b[i+j] = w.register()
		}
		VUNPCKLPD(a[i+2], a[i], b[i])
		VUNPCKHPD(a[i+2], a[i], b[i+1])
		VUNPCKLPD(a[i+3], a[i+1], b[i+2])
		VUNPCKHPD(a[i+3], a[i+1], b[i+3])
	}
	return b
}

// sixteens are the last two rounds for 16 rows.
func sixteens(b []VecVirtual) []VecVirtual {
	out := make([]VecVirtual, 16)
	for j := range 4 {
		lo0, lo1, hi0, hi1 := ZMM(), ZMM(), ZMM(), ZMM()
		VSHUFF32X4(Imm(0x88), b[4+j], b[j], lo0)    // blocks 0, 2 of groups 0 and 1
		VSHUFF32X4(Imm(0xdd), b[4+j], b[j], hi0)    // blocks 1, 3
		VSHUFF32X4(Imm(0x88), b[12+j], b[8+j], lo1) // of groups 2 and 3
		VSHUFF32X4(Imm(0xdd), b[12+j], b[8+j], hi1)
		for q := range 4 {
			out[4*q+j] = ZMM()
		}
		VSHUFF32X4(Imm(0x88), lo1, lo0, out[j])
		VSHUFF32X4(Imm(0xdd), lo1, lo0, out[8+j])
		VSHUFF32X4(Imm(0x88), hi1, hi0, out[4+j])
		VSHUFF32X4(Imm(0xdd), hi1, hi0, out[12+j])
	}
	return out
}
