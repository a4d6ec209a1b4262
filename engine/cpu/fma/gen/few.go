package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// few is rows x (halves registers of 16 outputs) chains with affine weights that are decoded in registers. With so few
// rows, writing them to a panel and reading them again takes longer than the chains.
func few(bits, rows, halves int) {
	name := fmt.Sprintf("few512x%dx%dx%d", bits, rows, halves)
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, words *float32, next int, sides *float32, nextSides, groups, periods int, ahead *byte, stride int, first bool)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s adds the products of x [%d, *] and the weights of %d outputs to c [%d, %d], inputs ascending.", name, rows, 16*halves, rows, 16*halves),
		fmt.Sprintf("words are the codes of 16 outputs, [*, 16], %d words for %d inputs; sides are their scales and biases [groups, 2, 16].", width, codes),
		"The next 16 outputs have theirs next and nextSides floats on. Meanwhile 256 bytes at ahead, and stride bytes on for every word, are", "brought near. It needs AVX-512F.")
	f := fewKernel{bits: bits, x: newGrid(load("x"), load("ldx"), rows), words: newGrid(load("words"), load("next"), halves),
		sides: newGrid(load("sides"), load("nextSides"), halves), ahead: load("ahead"), stride: load("stride"), table: codeTable(wide, bits)}
	if f.table == nil {
		f.mask = ZMM()
		low := GP32()
		MOVL(U32(1<<bits-1), low)
		VPBROADCASTD(low, f.mask)
	}
	f.acc = make([][]VecVirtual, rows)
	for r := range f.acc {
		for range halves {
			f.acc[r] = append(f.acc[r], ZMM())
		}
	}
	groups, left := load("groups"), GP64()
	begin(wide, f.acc)
	Label("loop")
	TESTQ(groups, groups)
	JZ(LabelRef("done"))
	DECQ(groups)
	f.loadSides()
	Load(Param("periods"), left)
	Label("period")
	f.period(codes, width)
	DECQ(left)
	JNZ(LabelRef("period"))
	JMP(LabelRef("loop"))
	Label("done")
	c := newGrid(load("c"), load("ldc"), rows)
	for r := range f.acc {
		for h := range f.acc[r] {
			VMOVUPS(f.acc[r][h], c.at(r, 64*h))
		}
	}
	VZEROUPPER()
	RET()
}

type fewKernel struct {
	bits            int
	x, words, sides grid
	ahead, stride   GPVirtual
	table, mask     VecVirtual // one of them
	acc             [][]VecVirtual
	scale, bias     []VecVirtual
}

func (f *fewKernel) loadSides() {
	f.scale, f.bias = nil, nil
	for h := range f.acc[0] {
		scale, bias := ZMM(), ZMM()
		VMOVUPS(f.sides.at(h, 0), scale)
		VMOVUPS(f.sides.at(h, 64), bias)
		f.scale, f.bias = append(f.scale, scale), append(f.bias, bias)
	}
	f.sides.advanceFar(128)
}

// period multiplies the codes of one period.
func (f *fewKernel) period(codes, width int) {
	for range width {
		for line := range 4 {
			PREFETCHT0(Mem{Base: f.ahead, Disp: 64 * line})
		}
		ADDQ(f.stride, f.ahead)
	}
	for i := range codes {
		for h := range f.acc[0] {
			w := f.code(h, i)
			VFMADD213PS(f.bias[h], f.scale[h], w)
			for r := range f.acc {
				VFMADD231PS_BCST(f.x.at(r, 4*i), w, f.acc[r][h])
			}
		}
	}
	f.words.advanceFar(64 * width)
	f.x.advanceFar(4 * codes)
}

// code is code i of the outputs of half h, as a float32.
func (f *fewKernel) code(h, i int) VecVirtual {
	at, v := f.bits*i, ZMM()
	d, off := at/32, at%32
	if f.table != nil && off == 0 {
		VMOVDQU32(f.words.at(h, 64*d), v)
	} else {
		VPSRLD(Imm(uint64(off)), f.words.at(h, 64*d), v)
	}
	if off+f.bits > 32 {
		high := ZMM()
		VPSLLD(Imm(uint64(32-off)), f.words.at(h, 64*(d+1)), high)
		VPORD(high, v, v)
	}
	if f.table != nil {
		VPERMPS(f.table, v, v)
		return v
	}
	VPANDD(f.mask, v, v)
	VCVTDQ2PS(v, v)
	return v
}

// advanceFar is advance by any number of bytes.
func (g grid) advanceFar(bytes int) {
	ADDQ(U32(uint32(bytes)), g.base)
	if g.far != nil {
		ADDQ(U32(uint32(bytes)), g.far)
	}
}
