package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// split packs a row.
func split() {
	kernel("split512", "func(to *byte, x *float32, order *byte, group, groups int)")
	Doc("split512 packs the groups of a row: to [groups, 3*group+8]. In every 16 inputs that of number order[i] comes i-th. group is a multiple of 16.", needs)
	to, x, group, groups := load("to"), load("x"), load("group"), load("groups")
	order := XMM()
	VMOVDQU(Mem{Base: load("order")}, order)
	half, magnitude := everywhere(128), everywhere(0x7fffffff)
	left := GP64()
	Label("group")
	largest := ZMM()
	zero(largest)
	XORQ(left, left)
	Label("largest")
	v := ZMM()
	VPANDD(Mem{Base: x, Index: left, Scale: 4}, magnitude, v)
	VPMAXUD(v, largest, largest)
	ADDQ(Imm(16), left)
	CMPQ(left, group)
	JB(LabelRef("largest"))
	unit, scale := units(reduced(VPMAXUD, largest), func(v GPVirtual) VecVirtual {
		to := ZMM()
		VPBROADCASTD(v, to)
		return to
	})
	total := ZMM()
	zero(total)
	XORQ(left, left)
	middle, last := GP64(), GP64()
	LEAQ(Mem{Base: to, Index: group, Scale: 1}, middle)
	LEAQ(Mem{Base: to, Index: group, Scale: 2}, last)
	Label("limbs")
	t := ZMM()
	VMULPS(Mem{Base: x, Index: left, Scale: 4}, scale, t)
	VCVTPS2DQ(t, t)
	VPADDD(t, total, total)
	for _, at := range []GPVirtual{last, middle, to} {
		low := XMM()
		VPMOVDB(t, low)
		VPSHUFB(order, low, low)
		VMOVDQU(low, Mem{Base: at, Index: left, Scale: 1})
		if at != to {
			VPADDD(half, t, t)
			VPSRAD(Imm(8), t, t)
		}
	}
	ADDQ(Imm(16), left)
	CMPQ(left, group)
	JB(LabelRef("limbs"))
	sides(Mem{Base: last, Index: group, Scale: 1}, unit, reduced(VPADDD, total))
	LEAQ(Mem{Base: last, Index: group, Scale: 1, Disp: 8}, to)
	LEAQ(Mem{Base: x, Index: group, Scale: 4}, x)
	DECQ(groups)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// units are the unit of a group, by the bits of its largest magnitude, and a register of how many units are in one.
func units(largest VecVirtual, everywhere func(GPVirtual) VecVirtual) (unit GPVirtual, scale VecVirtual) {
	exponent, least, none := GP32(), GP32(), GP32()
	VMOVD(largest, exponent)
	SHRL(Imm(23), exponent)
	MOVL(U32(22), least)
	CMPL(exponent, least)
	CMOVLLT(least, exponent)
	up, unit := GP32(), GP32()
	MOVL(U32(275), up)
	SUBL(exponent, up)
	SHLL(Imm(23), up)
	scale = everywhere(up)
	MOVL(exponent, unit)
	SUBL(Imm(21), unit)
	SHLL(Imm(23), unit)
	MOVL(U32(0x7fc00000), none)
	CMPL(exponent, U32(255))
	CMOVLEQ(none, unit)
	return unit, scale
}

// sides writes a group's unit, and its total as a float32.
func sides(at Mem, unit GPVirtual, total VecVirtual) {
	sum, times := XMM(), XMM()
	MOVL(unit, at)
	VMOVD(unit, times)
	VCVTDQ2PS(total, sum)
	VMULSS(times, sum, sum)
	at.Disp += 4
	VMOVSS(sum, at)
}

// reduced is the low end of all lanes brought together.
func reduced(with func(...Op), v VecVirtual) VecVirtual {
	upper := YMM()
	VEXTRACTI64X4(Imm(1), v, upper)
	with(upper, v.AsY(), upper)
	return reduced256(with, upper)
}

// reduced256 is reduced of half a register.
func reduced256(with func(...Op), v VecVirtual) VecVirtual {
	low, other := XMM(), XMM()
	VEXTRACTI128(Imm(1), v, low)
	with(v.AsX(), low, low)
	for _, by := range []uint64{0x4e, 0xb1} {
		VPSHUFD(Imm(by), low, other)
		with(other, low, low)
	}
	return low
}
