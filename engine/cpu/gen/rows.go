package main

import (
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// rows are the kernels that decode stored numbers of 16 and of 8 bits.
func (w width) rows() {
	w.words("widen", "data *byte", "the bf16 value i of data", func(from Mem, v VecVirtual) {
		VPMOVZXWD(from, v)
		VPSLLD(Imm(16), v, v)
	})
	w.words("widenHalves", "halves *uint16", "half i", func(from Mem, v VecVirtual) { VCVTPH2PS(from, v) })
	w.widenCodes()
}

// words decodes numbers of 16 bits, which decode brings into a register.
func (w width) words(base, param, what string, decode func(from Mem, v VecVirtual)) {
	name, _, _ := strings.Cut(param, " ")
	kernel(w.name(base), "func(dst *float32, "+param+", n int)")
	Doc(w.name(base)+" sets dst[i] to "+what+" for i < n; n is a multiple of 16.", w.needs())
	dst, data, n := Load(Param("dst"), GP64()), Load(Param(name), GP64()), Load(Param("n"), GP64())
	Label("loop")
	CMPQ(n, Imm(16))
	JL(LabelRef("done"))
	for part := range 16 / w.floats() {
		v := w.register()
		decode(Mem{Base: data, Disp: w.bytes(part) / 2}, v)
		VMOVUPS(v, Mem{Base: dst, Disp: w.bytes(part)})
	}
	ADDQ(Imm(32), data)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// widenCodes decodes groups of 32 codes of 8 bits, each with a half that they are worth.
func (w width) widenCodes() {
	kernel(w.name("widenCodes"), "func(dst *float32, codes *int8, scales *uint16, groups int)")
	Doc(w.name("widenCodes")+" sets dst[32*g+i] to codes[32*g+i] * scales[g] for g < groups.", w.needs())
	dst, codes := Load(Param("dst"), GP64()), Load(Param("codes"), GP64())
	scales, n := Load(Param("scales"), GP64()), Load(Param("groups"), GP64())
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	scale := w.register()
	halves := XMM()
	if w == zmm {
		halves = YMM()
	}
	VPBROADCASTW(Mem{Base: scales}, halves)
	VCVTPH2PS(halves, scale)
	for i := range 32 / w.floats() {
		v := w.register()
		VPMOVSXBD(Mem{Base: codes, Disp: w.floats() * i}, v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		VMOVUPS(v, Mem{Base: dst, Disp: w.bytes(i)})
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
