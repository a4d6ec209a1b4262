package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// nibbleDots512 is rows x 16 dot products with weights of 4 bits, which never leave the registers: a lane is a row of
// weights, and a word of it holds eight codes.
func nibbleDots512(rows int) {
	kernel(name("nibbleDots512x", rows), "func(c *float32, x **float32, codes *byte, at *int32, scales, biases *float32, groups, words int)")
	Doc(name("nibbleDots512x", rows)+" sets c[r*16+j] to the dot product of row x[r] and the row of weights whose codes begin at codes + at[j].",
		"A row has `groups` groups of 8*words codes; scales and biases are [groups, 16]. It needs AVX-512F.")
	xs := rowPointers(rows)
	codes, at := Load(Param("codes"), GP64()), ZMM()
	VMOVDQU32(Mem{Base: Load(Param("at"), GP64())}, at)
	scales, biases := Load(Param("scales"), GP64()), Load(Param("biases"), GP64())
	groups, words := Load(Param("groups"), GP64()), Load(Param("words"), GP64())
	acc := make([]VecVirtual, rows)
	for r := range acc {
		acc[r] = ZMM()
		VPXORD(acc[r], acc[r], acc[r])
	}
	low, mask := GP32(), ZMM()
	MOVL(U32(15), low)
	VPBROADCASTD(low, mask)
	k, left, scale, bias := GP64(), GP64(), ZMM(), ZMM()
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
	all, word := K(), ZMM()
	KXNORW(all, all, all) // a gather clears its mask
	VPXORD(word, word, word)
	VPGATHERDD(Mem{Base: codes, Index: at, Scale: 1}, all, word)
	for i := range 8 {
		w := ZMM()
		VPSRLD(Imm(uint64(4*i)), word, w)
		VPANDD(mask, w, w)
		VCVTDQ2PS(w, w)
		VMULPS(scale, w, w)
		VADDPS(bias, w, w)
		addProducts(acc, xs, Mem{Index: k, Scale: 4, Disp: 4 * i}, w)
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

// addProducts adds the products of w and an input of every row of x to the sums.
func addProducts(acc []VecVirtual, xs []GPVirtual, input Mem, w VecVirtual) {
	for r := range acc {
		t := ZMM()
		input.Base = xs[r]
		VMULPS_BCST(input, w, t)
		VADDPS(t, acc[r], acc[r])
	}
}
