package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// laneSums are the sums with sixteen float64 lanes: element i goes to lane i mod 16.
func laneSums(table Mem) {
	begin("softmax512", "func(x *float32, n int, scale, top float32, sums *float64)",
		"softmax512 sets x[i] to exp32(x[i]*scale - top), where none is above top, and adds it to sums[i mod 16].")
	scale, top := broadcast("scale"), broadcast("top")
	withLanes([]string{"x"}, func(at []Mem, lanes [2]VecVirtual) {
		v := ZMM()
		VMULPS(at[0], scale, v)
		VSUBPS(top, v, v)
		e := exp512(table, v)
		VMOVUPS(e, at[0])
		low, high := widen(e)
		VADDPD(low, lanes[0], lanes[0])
		VADDPD(high, lanes[1], lanes[1])
	})
	begin("dots64x512", "func(x, y *float32, n int, sums *float64)", "dots64x512 adds x[i]*y[i] to sums[i mod 16].")
	withLanes([]string{"x", "y"}, func(at []Mem, lanes [2]VecVirtual) {
		x, y := ZMM(), ZMM()
		VMOVUPS(at[0], x)
		VMOVUPS(at[1], y)
		xl, xh := widen(x)
		yl, yh := widen(y)
		VFMADD231PD(xl, yl, lanes[0]) // the product of two float32 is exact: fused or not, one rounding
		VFMADD231PD(xh, yh, lanes[1])
	})
	begin("largest512", "func(x *float32, n int, top *float32)", "largest512 sets top[i mod 16] to the largest x[i], or to itself if that is larger.")
	to := Load(Param("top"), GP64())
	best := ZMM()
	VMOVUPS(Mem{Base: to}, best)
	loop([]string{"x"}, func(at []Mem) { VMAXPS(at[0], best, best) })
	VMOVUPS(best, Mem{Base: to})
	VZEROUPPER()
	RET()
}

// widen is the sixteen float32 of v as float64.
func widen(v VecVirtual) (low, high VecVirtual) {
	low, high = ZMM(), ZMM()
	upper := YMM()
	VEXTRACTF64X4(Imm(1), v, upper)
	VCVTPS2PD(v.AsY(), low)
	VCVTPS2PD(upper, high)
	return low, high
}

// withLanes is each with the lanes of the parameter sums.
func withLanes(params []string, body func(at []Mem, lanes [2]VecVirtual)) {
	sums := Load(Param("sums"), GP64())
	lanes := [2]VecVirtual{ZMM(), ZMM()}
	VMOVUPD(Mem{Base: sums}, lanes[0])
	VMOVUPD(Mem{Base: sums, Disp: 64}, lanes[1])
	loop(params, func(at []Mem) { body(at, lanes) })
	VMOVUPD(lanes[0], Mem{Base: sums})
	VMOVUPD(lanes[1], Mem{Base: sums, Disp: 64})
	VZEROUPPER()
	RET()
}
