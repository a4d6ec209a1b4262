package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// fewUpper256 is fewUpper for rows x halves <= 4. A register of pairs of bf16 becomes one of the outputs with even numbers and
// one of those with odd ones, which is shorter than to widen twice; the chains are put in order at the end.
func fewUpper256(rows, halves int) {
	name := fmt.Sprintf("fewUpper256x%dx%d", rows, halves)
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, words *float32, next, inputs int, ahead *byte)")
	Doc(fmt.Sprintf("%s sets c to the products of x [%d, *] and the weights of %d outputs, [%d, %d], inputs ascending.", name, rows, 16*halves, rows, 16*halves),
		"words are the weights of 16 outputs in bf16, [*, 16]; the next 16 outputs have theirs next floats on.",
		fmt.Sprintf("Meanwhile %d bytes at ahead for every input are brought near. It needs AVX2 and FMA, and an input.", 32*halves))
	x, words := newGrid(load("x"), load("ldx"), rows), newGrid(load("words"), load("next"), halves)
	inputs, ahead := load("inputs"), load("ahead")
	high, acc := upperMask(2), make([][]VecVirtual, rows)
	for r := range acc {
		for range 2 * halves {
			a := YMM()
			zero(narrow, a)
			acc[r] = append(acc[r], a)
		}
	}
	Label("loop")
	for line := 0; line < 32*halves; line += 64 {
		PREFETCHT0(Mem{Base: ahead, Disp: line})
	}
	SUBQ(I32(-32*int32(halves)), ahead)
	xs := make([]VecVirtual, rows)
	for r := range xs {
		xs[r] = YMM()
		VBROADCASTSS(x.at(r, 0), xs[r])
	}
	for h := range halves {
		even, odd := YMM(), YMM()
		VMOVDQU(words.at(h, 0), odd)
		VPSLLD(Imm(16), odd, even)
		VPAND(high, odd, odd)
		for r := range acc {
			VFMADD231PS(even, xs[r], acc[r][2*h])
			VFMADD231PS(odd, xs[r], acc[r][2*h+1])
		}
	}
	words.advance(32)
	x.advance(4)
	DECQ(inputs)
	JNZ(LabelRef("loop"))
	c := newGrid(load("c"), load("ldc"), rows)
	for r := range acc {
		for h := range halves {
			low, high := interleave(acc[r][2*h], acc[r][2*h+1])
			VMOVUPS(low, c.at(r, 64*h))
			VMOVUPS(high, c.at(r, 64*h+32))
		}
	}
	VZEROUPPER()
	RET()
}

// interleave puts numbers at even and at odd places in their order.
func interleave(even, odd VecVirtual) (first, second VecVirtual) {
	low, high, second := YMM(), YMM(), YMM()
	VUNPCKLPS(odd, even, low)
	VUNPCKHPS(odd, even, high)
	VPERM2F128(Imm(0x31), high, low, second)
	VPERM2F128(Imm(0x20), high, low, low)
	return low, second
}
