package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// widenHalves512 decodes IEEE halves.
func widenHalves512() {
	kernel("widenHalves512", "func(dst *float32, halves *uint16, n int)")
	Doc("widenHalves512 sets dst[i] to half i for i < n; n is a multiple of 16.", "It needs AVX-512F.")
	dst, halves, n := Load(Param("dst"), GP64()), Load(Param("halves"), GP64()), Load(Param("n"), GP64())
	Label("loop")
	CMPQ(n, Imm(16))
	JL(LabelRef("done"))
	v := ZMM()
	VCVTPH2PS(Mem{Base: halves}, v)
	VMOVUPS(v, Mem{Base: dst})
	ADDQ(Imm(32), halves)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// widenCodes512 decodes groups of 32 codes of 8 bits, each with a half that they are worth.
func widenCodes512() {
	kernel("widenCodes512", "func(dst *float32, codes *int8, scales *uint16, groups int)")
	Doc("widenCodes512 sets dst[32*g+i] to codes[32*g+i] * scales[g] for g < groups.", "It needs AVX-512F.")
	dst, codes := Load(Param("dst"), GP64()), Load(Param("codes"), GP64())
	scales, n := Load(Param("scales"), GP64()), Load(Param("groups"), GP64())
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	halves, scale := YMM(), ZMM()
	VPBROADCASTW(Mem{Base: scales}, halves)
	VCVTPH2PS(halves, scale)
	for i := range 2 {
		v := ZMM()
		VPMOVSXBD(Mem{Base: codes, Disp: 16 * i}, v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		VMOVUPS(v, Mem{Base: dst, Disp: 64 * i})
	}
	ADDQ(Imm(2), scales)
	ADDQ(Imm(32), codes)
	ADDQ(U32(128), dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
