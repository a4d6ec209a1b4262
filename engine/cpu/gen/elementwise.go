package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The constants of exp32 and sigmoid, in this order.
const (
	cLog2e = iota
	cRound
	cLn2Hi
	cLn2Lo
	cP0
	cP1
	cP2
	cP3
	cP4
	cP5
	cOne
	cExpMin
	cSign
)

// constants is the table that exp reads, made once for each width: instructions on the narrow registers cannot spread
// a float, so that theirs has every constant in all lanes.
type constants struct {
	width
	table Mem
}

func (w width) constants() constants {
	name, times := "expConstants", 1
	if w == ymm {
		name, times = "expConstants256", w.floats()
	}
	table := GLOBL(name, RODATA|NOPTR)
	for i, v := range []uint32{
		math.Float32bits(1.44269504088896340735992468100189214), math.Float32bits(3 << 22), math.Float32bits(0.693359375),
		math.Float32bits(-2.12194440054690583e-4), math.Float32bits(1.9875691500e-4), math.Float32bits(1.3981999507e-3),
		math.Float32bits(8.3334519073e-3), math.Float32bits(4.1665795894e-2), math.Float32bits(1.6666665459e-1),
		math.Float32bits(5.0000001201e-1), math.Float32bits(1), math.Float32bits(-87.3), 1 << 31,
	} {
		for j := range times {
			DATA(4*(times*i+j), U32(v))
		}
	}
	return constants{w, table}
}

// of is constant i of the table.
func (c constants) of(i int) Mem {
	if c.width == ymm {
		return c.table.Offset(c.bytes(i))
	}
	return c.table.Offset(4 * i)
}

// binary is an instruction of two sources, and the same with the first spread from a float in memory.
type binary struct{ whole, spread func(ops ...Op) }

func times() binary { return binary{VMULPS, VMULPS_BCST} }
func plus() binary  { return binary{VADDPS, VADDPS_BCST} }
func minus() binary { return binary{VSUBPS, VSUBPS_BCST} }

// do sets r to x, the instruction and constant i.
func (c constants) do(b binary, i int, x, r VecVirtual) {
	if c.width == ymm {
		b.whole(c.of(i), x, r)
		return
	}
	b.spread(c.of(i), x, r)
}

// exp is exp32 of every lane of x for x <= 0 or NaN: the same operations in the same order.
func (c constants) exp(x VecVirtual) VecVirtual {
	n, r, t, p := c.register(), c.register(), c.register(), c.register()
	c.do(times(), cLog2e, x, n)
	c.do(plus(), cRound, n, n)
	c.do(minus(), cRound, n, n)
	c.do(times(), cLn2Hi, n, t)
	VSUBPS(t, x, r)
	c.do(times(), cLn2Lo, n, t)
	VSUBPS(t, r, r)
	c.do(times(), cP0, r, p)
	c.do(plus(), cP1, p, p)
	for _, i := range []int{cP2, cP3, cP4, cP5} {
		VMULPS(r, p, p)
		c.do(plus(), i, p, p)
	}
	VMULPS(r, r, t)
	VMULPS(t, p, p)
	VADDPS(r, p, p)
	c.do(plus(), cOne, p, p)
	VCVTTPS2DQ(n, n)
	VPSLLD(Imm(23), n, n)
	VPADDD(n, p, p)
	c.flush(x, p)
	return p
}

// flush makes p zero where x < expMin.
func (c constants) flush(x, p VecVirtual) {
	if c.width == ymm {
		low := YMM()
		VCMPPS(Imm(1), c.of(cExpMin), x, low)
		VANDNPS(p, low, p)
		return
	}
	low := K()
	VCMPPS_BCST(Imm(1), c.of(cExpMin), x, low)
	KNOTW(low, low)
	VMOVAPS_Z(p, low, p)
}

// sigmoid is sigmoid of every lane of v.
func (c constants) sigmoid(v VecVirtual) VecVirtual {
	a, one, den := c.register(), c.register(), c.register()
	if c.width == ymm {
		VORPS(c.of(cSign), v, a)
		e := c.exp(a)
		VMOVUPS(c.of(cOne), one)
		VADDPS(e, one, den)
		VBLENDVPS(v, e, one, one) // e where v's sign is set
		VDIVPS(den, one, one)
		return one
	}
	negative := K()
	VPORD_BCST(c.of(cSign), v, a)
	e := c.exp(a)
	VBROADCASTSS(c.of(cOne), one)
	VADDPS(e, one, den)
	VPTESTMD_BCST(c.of(cSign), v, negative)
	VBLENDMPS(e, one, negative, one)
	VDIVPS(den, one, one)
	return one
}

// elementwise are the operations whose results do not meet.
func (w width) elementwise() {
	c := w.constants()
	w.begin("sigmoid", "func(x *float32, n int, scale, gain float32)", "sets x[i] to gain * sigmoid(x[i]*scale).")
	scale, gain := w.broadcast("scale"), w.broadcast("gain")
	w.each([]string{"x"}, func(at []Mem) {
		v := w.register()
		VMULPS(at[0], scale, v)
		s := c.sigmoid(v)
		VMULPS(gain, s, s)
		VMOVUPS(s, at[0])
	})
	w.begin("silu", "func(x *float32, n int, scale float32)", "sets x[i] to silu(x[i]*scale).")
	scale = w.broadcast("scale")
	w.each([]string{"x"}, func(at []Mem) {
		v := w.register()
		VMULPS(at[0], scale, v)
		s := c.sigmoid(v)
		VMULPS(s, v, s)
		VMOVUPS(s, at[0])
	})
	w.begin("swiGLU", "func(y, gate, up *float32, n int)", "sets y[i] to silu(gate[i]) * up[i].")
	w.each([]string{"y", "gate", "up"}, func(at []Mem) {
		v := w.register()
		VMOVUPS(at[1], v)
		s := c.sigmoid(v)
		VMULPS(s, v, s)
		VMULPS(at[2], s, s)
		VMOVUPS(s, at[0])
	})
	w.begin("expBelow", "func(x *float32, n int, top float32)", "sets x[i] to exp32(x[i] - top), where none is above top.")
	top := w.broadcast("top")
	w.each([]string{"x"}, func(at []Mem) {
		v := w.register()
		VMOVUPS(at[0], v)
		VSUBPS(top, v, v)
		e := c.exp(v)
		VMOVUPS(e, at[0])
	})
	w.sums()
	w.laneSums(c)
	w.mix(c)
	w.positives()
}

// sums are the elementwise operations that need no exponential.
func (w width) sums() {
	w.begin("addScaled", "func(y, x *float32, n int, w float32)", "adds w * x[i] to y[i].")
	factor := w.broadcast("w")
	w.each([]string{"y", "x"}, func(at []Mem) {
		v := w.register()
		VMULPS(at[1], factor, v)
		VADDPS(at[0], v, v)
		VMOVUPS(v, at[0])
	})
	w.begin("addProduct", "func(y, u, z *float32, n int)", "adds u[i] * z[i] to y[i].")
	w.each([]string{"y", "u", "z"}, func(at []Mem) {
		v := w.register()
		VMOVUPS(at[1], v)
		VMULPS(at[2], v, v)
		VADDPS(at[0], v, v)
		VMOVUPS(v, at[0])
	})
	w.begin("normScale", "func(y, x, scale *float32, n int, r float32)", "sets y[i] to (x[i]*r) * scale[i].")
	r := w.broadcast("r")
	w.each([]string{"y", "x", "scale"}, func(at []Mem) {
		v := w.register()
		VMULPS(at[1], r, v)
		VMULPS(at[2], v, v)
		VMOVUPS(v, at[0])
	})
}
