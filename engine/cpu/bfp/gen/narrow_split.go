package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// split packs a row.
func (n *narrow) split() {
	kernel("split256", "func(to *byte, x *float32, order *byte, group, groups int)")
	Doc("split256 is split512 for processors without AVX-512: group is a multiple of 16.", needsAVX2)
	to, x, group, groups := load("to"), load("x"), load("group"), load("groups")
	order := XMM()
	VMOVDQU(Mem{Base: load("order")}, order)
	left := GP64()
	Label("group")
	largest, magnitude := YMM(), everywhere256(0x7fffffff)
	VPXOR(largest, largest, largest)
	XORQ(left, left)
	Label("largest")
	v := YMM()
	VPAND(Mem{Base: x, Index: left, Scale: 4}, magnitude, v)
	VPMAXUD(v, largest, largest)
	ADDQ(Imm(narrowLanes), left)
	CMPQ(left, group)
	JB(LabelRef("largest"))
	unit, scale := units(reduced256(VPMAXUD, largest), broadcast256)
	half, byteOnly := everywhere256(128), everywhere256(255)
	total := YMM()
	VPXOR(total, total, total)
	XORQ(left, left)
	middle, last := GP64(), GP64()
	LEAQ(Mem{Base: to, Index: group, Scale: 1}, middle)
	LEAQ(Mem{Base: to, Index: group, Scale: 2}, last)
	Label("limbs")
	t := [2]VecVirtual{YMM(), YMM()}
	for i, v := range t {
		VMULPS(Mem{Base: x, Index: left, Scale: 4, Disp: 32 * i}, scale, v)
		VCVTPS2DQ(v, v)
		VPADDD(v, total, total)
	}
	for _, at := range []GPVirtual{last, middle, to} {
		VMOVDQU(lowBytes(t, byteOnly, order), Mem{Base: at, Index: left, Scale: 1})
		if at != to {
			for _, v := range t {
				VPADDD(half, v, v)
				VPSRAD(Imm(8), v, v)
			}
		}
	}
	ADDQ(Imm(16), left)
	CMPQ(left, group)
	JB(LabelRef("limbs"))
	sides(Mem{Base: last, Index: group, Scale: 1}, unit, reduced256(VPADDD, total))
	LEAQ(Mem{Base: last, Index: group, Scale: 1, Disp: 8}, to)
	LEAQ(Mem{Base: x, Index: group, Scale: 4}, x)
	DECQ(groups)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// lowBytes are the low bytes of 16 doublewords, in order.
func lowBytes(t [2]VecVirtual, byteOnly, order VecVirtual) VecVirtual {
	low, high := YMM(), YMM()
	VPAND(byteOnly, t[0], low)
	VPAND(byteOnly, t[1], high)
	VPACKUSDW(high, low, low) // the lower lanes of both, then the upper
	upper := XMM()
	VEXTRACTI128(Imm(1), low, upper)
	VPACKUSWB(upper, low.AsX(), upper)
	VPSHUFD(Imm(0xd8), upper, upper) // 0, 2, 1, 3
	VPSHUFB(order, upper, upper)
	return upper
}

// everywhere256 is a register whose doublewords are all v.
func everywhere256(v uint32) VecVirtual {
	low := GP32()
	MOVL(U32(v), low)
	return broadcast256(low)
}

func broadcast256(v GPVirtual) VecVirtual {
	of, to := XMM(), YMM()
	VMOVD(v, of)
	VPBROADCASTD(of, to)
	return to
}
