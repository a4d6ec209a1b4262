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

// constants is the table that exp512 reads, made once.
func constants() Mem {
	table := GLOBL("expConstants", RODATA|NOPTR)
	for i, v := range []float32{
		1.44269504088896340735992468100189214, 3 << 22, 0.693359375, -2.12194440054690583e-4, 1.9875691500e-4, 1.3981999507e-3,
		8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, -87.3,
	} {
		DATA(4*i, U32(math.Float32bits(v)))
	}
	DATA(4*cSign, U32(1<<31))
	return table
}

// of is constant i of the table.
func of(table Mem, i int) Mem { return table.Offset(4 * i) }

// exp512 is exp32 of every lane of x for x <= 0 or NaN: the same operations in the same order.
func exp512(table Mem, x VecVirtual) VecVirtual {
	n, r, t, p := ZMM(), ZMM(), ZMM(), ZMM()
	low := K()
	VMULPS_BCST(of(table, cLog2e), x, n)
	VADDPS_BCST(of(table, cRound), n, n)
	VSUBPS_BCST(of(table, cRound), n, n)
	VMULPS_BCST(of(table, cLn2Hi), n, t)
	VSUBPS(t, x, r)
	VMULPS_BCST(of(table, cLn2Lo), n, t)
	VSUBPS(t, r, r)
	VMULPS_BCST(of(table, cP0), r, p)
	VADDPS_BCST(of(table, cP1), p, p)
	for _, c := range []int{cP2, cP3, cP4, cP5} {
		VMULPS(r, p, p)
		VADDPS_BCST(of(table, c), p, p)
	}
	VMULPS(r, r, t)
	VMULPS(t, p, p)
	VADDPS(r, p, p)
	VADDPS_BCST(of(table, cOne), p, p)
	VCVTTPS2DQ(n, n)
	VPSLLD(Imm(23), n, n)
	VPADDD(n, p, p)
	VCMPPS_BCST(Imm(1), of(table, cExpMin), x, low) // x < expMin
	KNOTW(low, low)
	VMOVAPS_Z(p, low, p)
	return p
}

// sigmoid512 is sigmoid of every lane of v.
func sigmoid512(table Mem, v VecVirtual) VecVirtual {
	a, one, den := ZMM(), ZMM(), ZMM()
	negative := K()
	VPORD_BCST(of(table, cSign), v, a)
	e := exp512(table, a)
	VBROADCASTSS(of(table, cOne), one)
	VADDPS(e, one, den)
	VPTESTMD_BCST(of(table, cSign), v, negative)
	VBLENDMPS(e, one, negative, one)
	VDIVPS(den, one, one)
	return one
}

// broadcast loads a float32 parameter into every lane, straight from memory: MOVSS, which Load gives, is an old
// instruction that waits long for the upper halves of registers in use.
func broadcast(param string) VecVirtual {
	at, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	z := ZMM()
	VBROADCASTSS(at.Addr, z)
	return z
}

// each is loop and the return.
func each(params []string, body func(at []Mem)) {
	loop(params, body)
	VZEROUPPER()
	RET()
}

// loop goes over n floats, 16 at a time, with the pointers of params moving along.
func loop(params []string, body func(at []Mem)) {
	pointers := make([]Register, len(params))
	at := make([]Mem, len(params))
	for i, p := range params {
		pointers[i] = Load(Param(p), GP64())
		at[i] = Mem{Base: pointers[i]}
	}
	n := Load(Param("n"), GP64())
	Label("loop")
	CMPQ(n, Imm(16))
	JL(LabelRef("done"))
	body(at)
	for _, p := range pointers {
		ADDQ(Imm(64), p)
	}
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
}

func begin(name, signature string, doc ...string) {
	kernel(name, signature)
	Doc(append(doc, "n is a multiple of 16. It needs AVX-512F.")...)
}

// elementwise are the operations whose results do not meet.
func elementwise() {
	table := constants()
	begin("sigmoid512", "func(x *float32, n int, scale, gain float32)", "sigmoid512 sets x[i] to gain * sigmoid(x[i]*scale).")
	scale, gain := broadcast("scale"), broadcast("gain")
	each([]string{"x"}, func(at []Mem) {
		v := ZMM()
		VMULPS(at[0], scale, v)
		s := sigmoid512(table, v)
		VMULPS(gain, s, s)
		VMOVUPS(s, at[0])
	})
	begin("silu512", "func(x *float32, n int, scale float32)", "silu512 sets x[i] to silu(x[i]*scale).")
	scale = broadcast("scale")
	each([]string{"x"}, func(at []Mem) {
		v := ZMM()
		VMULPS(at[0], scale, v)
		s := sigmoid512(table, v)
		VMULPS(s, v, s)
		VMOVUPS(s, at[0])
	})
	begin("swiGLU512", "func(y, gate, up *float32, n int)", "swiGLU512 sets y[i] to silu(gate[i]) * up[i].")
	each([]string{"y", "gate", "up"}, func(at []Mem) {
		v := ZMM()
		VMOVUPS(at[1], v)
		s := sigmoid512(table, v)
		VMULPS(s, v, s)
		VMULPS(at[2], s, s)
		VMOVUPS(s, at[0])
	})
	sums(table)
	laneSums(table)
	mix512(table)
	positives512()
}

// sums are the elementwise operations that need no sigmoid.
func sums(table Mem) {
	begin("expBelow512", "func(x *float32, n int, top float32)", "expBelow512 sets x[i] to exp32(x[i] - top), where none is above top.")
	top := broadcast("top")
	each([]string{"x"}, func(at []Mem) {
		v := ZMM()
		VMOVUPS(at[0], v)
		VSUBPS(top, v, v)
		e := exp512(table, v)
		VMOVUPS(e, at[0])
	})
	begin("addScaled512", "func(y, x *float32, n int, w float32)", "addScaled512 adds w * x[i] to y[i].")
	w := broadcast("w")
	each([]string{"y", "x"}, func(at []Mem) {
		v := ZMM()
		VMULPS(at[1], w, v)
		VADDPS(at[0], v, v)
		VMOVUPS(v, at[0])
	})
	begin("addProduct512", "func(y, u, z *float32, n int)", "addProduct512 adds u[i] * z[i] to y[i].")
	each([]string{"y", "u", "z"}, func(at []Mem) {
		v := ZMM()
		VMOVUPS(at[1], v)
		VMULPS(at[2], v, v)
		VADDPS(at[0], v, v)
		VMOVUPS(v, at[0])
	})
	begin("normScale512", "func(y, x, scale *float32, n int, r float32)", "normScale512 sets y[i] to (x[i]*r) * scale[i].")
	r := broadcast("r")
	each([]string{"y", "x", "scale"}, func(at []Mem) {
		v := ZMM()
		VMULPS(at[1], r, v)
		VMULPS(at[2], v, v)
		VMOVUPS(v, at[0])
	})
}
