package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// laneSums are the sums with sixteen float64 lanes: element i goes to lane i mod 16.
func (w width) laneSums(c constants) {
	w.begin("softmax", "func(x *float32, n int, scale, top float32, sums *float64)",
		"sets x[i] to exp32(x[i]*scale - top), where none is above top, and adds it to sums[i mod 16].")
	scale, top := w.broadcast("scale"), w.broadcast("top")
	w.withLanes([]string{"x"}, func(at []Mem, lanes []VecVirtual) {
		v := w.register()
		VMULPS(at[0], scale, v)
		VSUBPS(top, v, v)
		e := c.exp(v)
		VMOVUPS(e, at[0])
		low, high := w.widen(e)
		VADDPD(low, lanes[0], lanes[0])
		VADDPD(high, lanes[1], lanes[1])
	})
	dots := "dots64x"
	w.begin(dots, "func(x, y *float32, n int, sums *float64)", "adds x[i]*y[i] to sums[i mod 16].")
	w.withLanes([]string{"x", "y"}, func(at []Mem, lanes []VecVirtual) {
		x, y := w.register(), w.register()
		VMOVUPS(at[0], x)
		VMOVUPS(at[1], y)
		xl, xh := w.widen(x)
		yl, yh := w.widen(y)
		VFMADD231PD(xl, yl, lanes[0]) // the product of two float32 is exact: fused or not, one rounding
		VFMADD231PD(xh, yh, lanes[1])
	})
	w.begin("largest", "func(x *float32, n int, top *float32)", "sets top[i mod 16] to the largest x[i], or to itself if that is larger.")
	to := Load(Param("top"), GP64())
	best := w.registers(16 / w.floats())
	for i, r := range best {
		VMOVUPS(Mem{Base: to, Disp: w.bytes(i)}, r)
	}
	w.loop([]string{"x"}, func(at []Mem, part int) { VMAXPS(at[0], best[part], best[part]) })
	w.store(to, best)
}

// widen is the float32 of v as float64.
func (w width) widen(v VecVirtual) (low, high VecVirtual) {
	low, high = w.register(), w.register()
	if w == ymm {
		upper := XMM()
		VEXTRACTF128(Imm(1), v, upper)
		VCVTPS2PD(v.AsX(), low)
		VCVTPS2PD(upper, high)
		return low, high
	}
	upper := YMM()
	VEXTRACTF64X4(Imm(1), v, upper)
	VCVTPS2PD(v.AsY(), low)
	VCVTPS2PD(upper, high)
	return low, high
}

// withLanes is each with the lanes of the parameter sums: two registers for each of floats.
func (w width) withLanes(params []string, body func(at []Mem, lanes []VecVirtual)) {
	sums := Load(Param("sums"), GP64())
	lanes := w.registers(16 * 8 / int(w))
	for i, r := range lanes {
		VMOVUPD(Mem{Base: sums, Disp: w.bytes(i)}, r)
	}
	w.loop(params, func(at []Mem, part int) { body(at, lanes[2*part:]) })
	for i, r := range lanes {
		VMOVUPD(r, Mem{Base: sums, Disp: w.bytes(i)})
	}
	VZEROUPPER()
	RET()
}
