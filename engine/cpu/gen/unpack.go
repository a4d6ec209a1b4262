package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// unpack4 decodes 4-bit codes: with wide registers through one of their 16 values.
func unpack4() {
	kernel("unpack4x512", "func(dst *float32, codes *byte, n int, scale, bias float32)")
	Doc("unpack4x512 sets dst[i] to scale * code i + bias, lowest nibble first, for i < n; n is a multiple of 16.", "It needs AVX-512F.")
	dst, codes, n := Load(Param("dst"), GP64()), Load(Param("codes"), GP64()), Load(Param("n"), GP64())
	values, bias, word, shift := zmm.broadcast("scale"), zmm.broadcast("bias"), ZMM(), ZMM()
	nibbles := GLOBL("nibbles", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, F32(i))
	}
	VMULPS(nibbles, values, values)
	VADDPS(bias, values, values)
	words := GLOBL("nibbleWords", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(i/8))
	}
	shifts := GLOBL("nibbleShifts", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(4*(i%8)))
	}
	VMOVDQU32(words, word)
	VMOVDQU32(shifts, shift)
	Label("loop")
	CMPQ(n, Imm(16))
	JL(LabelRef("done"))
	v := ZMM()
	VPBROADCASTQ(Mem{Base: codes}, v)
	VPERMD(v, word, v)
	VPSRLVD(shift, v, v)
	VPERMPS(values, v, v) // takes the low four bits of an index
	VMOVUPS(v, Mem{Base: dst})
	ADDQ(Imm(8), codes)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
	unpack4x256(shifts)
}

// unpack4x256 computes every value anew: two lookups in eight and a choice take as long.
func unpack4x256(shifts Mem) {
	kernel("unpack4x256", "func(dst *float32, codes *byte, n int, scale, bias float32)")
	Doc("unpack4x256 is unpack4x512 for narrower registers.", ymm.needs())
	dst, codes, n := Load(Param("dst"), GP64()), Load(Param("codes"), GP64()), Load(Param("n"), GP64())
	scale, bias, shift, mask := ymm.broadcast("scale"), ymm.broadcast("bias"), YMM(), ymm.low4()
	VMOVDQU(shifts, shift)
	Label("loop")
	CMPQ(n, Imm(16))
	JL(LabelRef("done"))
	for part := range 2 {
		v := YMM()
		VPBROADCASTD(Mem{Base: codes, Disp: 4 * part}, v)
		VPSRLVD(shift, v, v)
		VPAND(mask, v, v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		VADDPS(bias, v, v)
		VMOVUPS(v, Mem{Base: dst, Disp: 32 * part})
	}
	ADDQ(Imm(8), codes)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
