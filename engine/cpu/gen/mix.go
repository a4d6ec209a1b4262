package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// mix is what a read of the streams does with the gates that it computed.
func (w width) mix(c constants) {
	w.begin("mix", "func(y, u *float32, stepU int, z *float32, stepZ, streams, n int, share float32)",
		"sets y[i] to share times the sum over streams g, ascending from zero, of sigmoid(u[g*stepU+i]) * z[g*stepZ+i].")
	y, u, z := Load(Param("y"), GP64()), Load(Param("u"), GP64()), Load(Param("z"), GP64())
	stepU, stepZ := Load(Param("stepU"), GP64()), Load(Param("stepZ"), GP64())
	SHLQ(Imm(2), stepU)
	SHLQ(Imm(2), stepZ)
	streams, n, left, atU, atZ := Load(Param("streams"), GP64()), Load(Param("n"), GP64()), GP64(), GP64(), GP64()
	share, sum := w.broadcast("share"), w.register()
	Label("loop")
	CMPQ(n, Imm(uint64(w.floats())))
	JL(LabelRef("done"))
	w.clear(sum)
	MOVQ(u, atU)
	MOVQ(z, atZ)
	MOVQ(streams, left)
	Label("stream")
	v := w.register()
	VMOVUPS(Mem{Base: atU}, v)
	s := c.sigmoid(v)
	VMULPS(Mem{Base: atZ}, s, s)
	VADDPS(s, sum, sum)
	ADDQ(stepU, atU)
	ADDQ(stepZ, atZ)
	DECQ(left)
	JNZ(LabelRef("stream"))
	VMULPS(share, sum, sum)
	VMOVUPS(sum, Mem{Base: y})
	ADDQ(Imm(uint64(w)), y)
	ADDQ(Imm(uint64(w)), u)
	ADDQ(Imm(uint64(w)), z)
	SUBQ(Imm(uint64(w.floats())), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// positives makes scores of blocks out of products of several heads.
func (w width) positives() {
	w.begin("positives", "func(y, x *float32, step, heads, n int, scale float32)",
		"sets y[i] to scale times the sum over heads h, ascending from zero, of x[h*step+i] where it is not negative.")
	y, x, step := Load(Param("y"), GP64()), Load(Param("x"), GP64()), Load(Param("step"), GP64())
	SHLQ(Imm(2), step)
	heads, n, left, at := Load(Param("heads"), GP64()), Load(Param("n"), GP64()), GP64(), GP64()
	scale, zero, sum := w.broadcast("scale"), w.register(), w.register()
	w.clear(zero)
	Label("loop")
	CMPQ(n, Imm(uint64(w.floats())))
	JL(LabelRef("done"))
	w.clear(sum)
	MOVQ(x, at)
	MOVQ(heads, left)
	Label("head")
	v := w.register()
	VMAXPS(Mem{Base: at}, zero, v) // NaN stays
	VADDPS(v, sum, sum)
	ADDQ(step, at)
	DECQ(left)
	JNZ(LabelRef("head"))
	VMULPS(scale, sum, sum)
	VMOVUPS(sum, Mem{Base: y})
	ADDQ(Imm(uint64(w)), y)
	ADDQ(Imm(uint64(w)), x)
	SUBQ(Imm(uint64(w.floats())), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
