package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// nibbleDots is dot products of rows of x with a register of rows of weights of 4 bits, which never leave the registers:
// a lane is a row of weights, and a word of it holds eight codes.
func (w width) nibbleDots(rows int) {
	name := fmt.Sprint(w.name("nibbleDots"), "x", rows)
	kernel(name, "func(c *float32, x **float32, codes *byte, at *int32, scales, biases *float32, groups, words int)")
	Doc(name+fmt.Sprintf(" sets c[r*16+j] to the dot product of row x[r] and the row of weights whose codes begin at codes + at[j]%s.", w.some()),
		"A row has `groups` groups of 8*words codes; scales and biases are [groups, 16]. "+w.needs())
	xs := rowPointers(rows)
	codes, at := Load(Param("codes"), GP64()), w.register()
	w.move(Mem{Base: Load(Param("at"), GP64())}, at)
	scales, biases := Load(Param("scales"), GP64()), Load(Param("biases"), GP64())
	groups, words := Load(Param("groups"), GP64()), Load(Param("words"), GP64())
	acc := w.zeros(rows)
	mask := w.low4()
	k, left, scale, bias := GP64(), GP64(), w.register(), w.register()
	XORQ(k, k) // index of the input

	Label("group")
	TESTQ(groups, groups)
	JZ(LabelRef("done"))
	VMOVUPS(Mem{Base: scales}, scale)
	VMOVUPS(Mem{Base: biases}, bias)
	ADDQ(Imm(64), scales)
	ADDQ(Imm(64), biases)
	DECQ(groups)
	MOVQ(words, left)

	Label("word")
	TESTQ(left, left)
	JZ(LabelRef("group"))
	word := w.gather(Mem{Base: codes, Index: at, Scale: 1})
	for i := range 8 {
		v := w.register()
		VPSRLD(Imm(uint64(4*i)), word, v)
		w.and(mask, v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		VADDPS(bias, v, v)
		w.addProducts(acc, xs, Mem{Index: k, Scale: 4, Disp: 4 * i}, v)
	}
	ADDQ(Imm(8), k)
	ADDQ(Imm(4), codes)
	DECQ(left)
	JMP(LabelRef("word"))

	Label("done")
	c := Load(Param("c"), GP64())
	for r := range acc {
		VMOVUPS(acc[r], Mem{Base: c, Disp: 64 * r})
	}
	VZEROUPPER()
	RET()
}

// some says which of 16 a register of them are.
func (w width) some() string {
	if w == ymm {
		return ", j < 8"
	}
	return ""
}

// low4 is 15 in every lane.
func (w width) low4() VecVirtual {
	mask := w.register()
	if w == ymm {
		VPCMPEQD(mask, mask, mask)
		VPSRLD(Imm(28), mask, mask)
		return mask
	}
	low := GP32()
	MOVL(U32(15), low)
	VPBROADCASTD(low, mask)
	return mask
}

// gather loads a word for every lane.
func (w width) gather(from Mem) VecVirtual {
	if w == ymm {
		all, word := YMM(), YMM()
		VPCMPEQD(all, all, all) // a gather clears its mask
		VPXOR(word, word, word)
		VPGATHERDD(all, from, word)
		return word
	}
	all, word := K(), ZMM()
	KXNORW(all, all, all) // a gather clears its mask
	VPXORD(word, word, word)
	VPGATHERDD(from, all, word)
	return word
}

// addProducts adds the products of v and an input of every row of x to the sums.
func (w width) addProducts(acc []VecVirtual, xs []GPVirtual, input Mem, v VecVirtual) {
	for r := range acc {
		t := w.register()
		input.Base = xs[r]
		w.factor(input).times(v, t)
		VADDPS(t, acc[r], acc[r])
	}
}
