package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// transpose turns 16 rows into 16 columns. Elements of 2 bytes are the upper halves of float32. Listed rows are wherever
// a list says, and those that the list names next are brought near.
func transpose(name string, size int, byList bool) {
	row := "at src + j*stride"
	if byList {
		kernel(name, "func(dst *float32, step int, src *byte, stride, n int, list *int32)")
		row = "at src + list[j]*stride"
	} else {
		kernel(name, "func(dst *float32, step int, src *byte, stride, n int)")
	}
	Doc(fmt.Sprintf("%s sets dst[i*step+j] to element i of the row %s for j < 16 and i < n, and some more of dst, up to", name, row),
		fmt.Sprintf("a multiple of 16, to zero. An element has %d bytes. It needs AVX-512F.", size))
	dst, step, src, stride, n := load("dst"), load("step"), load("src"), load("stride"), load("n")
	var list GPVirtual
	if byList {
		list = load("list")
	}
	SHLQ(Imm(2), step)
	all := GP32()
	mask := K()
	Label("loop")
	TESTQ(n, n)
	JLE(LabelRef("done"))
	MOVL(U32(0xffff), all)
	CMPQ(n, Imm(16))
	JGE(LabelRef("whole"))
	MOVQ(n, RCX)
	MOVL(U32(1), all)
	SHLL(CL, all)
	DECL(all)
	Label("whole")
	KMOVW(all, mask)
	at := GP64()
	MOVQ(src, at)
	in := make([]VecVirtual, 16)
	for i := range in {
		in[i] = ZMM()
		if byList {
			listedRow(at, list, 64+4*i, stride, src)
			PREFETCHT0(Mem{Base: at})
			listedRow(at, list, 4*i, stride, src)
		}
		if size == 4 {
			VMOVUPS_Z(Mem{Base: at}, mask, in[i])
		} else {
			VPMOVZXWD_Z(Mem{Base: at}, mask, in[i])
			VPSLLD(Imm(16), in[i], in[i])
		}
		if !byList {
			ADDQ(stride, at)
		}
	}
	for _, v := range transpose16(in) {
		VMOVUPS(v, Mem{Base: dst})
		ADDQ(step, dst)
	}
	ADDQ(U32(uint32(16*size)), src)
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// gatherPairs takes pairs of bf16 out of 16 rows: where rows are short, that is faster than to transpose whole blocks.
func gatherPairs() {
	kernel("gather512x16", "func(dst *float32, step int, src *byte, stride, n int)")
	Doc("gather512x16 sets dst[i*step+j] to bf16 i of the row at src + j*stride for j < 16 and i < n, n even. It needs AVX-512F.")
	GLOBL("rowNumbers", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(uint32(i)))
	}
	dst, step, src, stride, n := load("dst"), load("step"), load("src"), load("stride"), load("n")
	SHLQ(Imm(2), step)
	at, high := ZMM(), ZMM()
	VPBROADCASTD(stride.As32(), at)
	VPMULLD(NewDataAddr(NewStaticSymbol("rowNumbers"), 0), at, at)
	mask := GP32()
	MOVL(U32(0xffff0000), mask)
	VPBROADCASTD(mask, high)
	Label("loop")
	CMPQ(n, Imm(2))
	JL(LabelRef("done"))
	all, pair, first := K(), ZMM(), ZMM()
	KXNORW(all, all, all) // a gather clears its mask
	VPXORD(pair, pair, pair)
	VPGATHERDD(Mem{Base: src, Index: at, Scale: 1}, all, pair)
	VPSLLD(Imm(16), pair, first)
	VPANDD(high, pair, pair)
	VMOVUPS(first, Mem{Base: dst})
	VMOVUPS(pair, Mem{Base: dst, Index: step, Scale: 1})
	LEAQ(Mem{Base: dst, Index: step, Scale: 2}, dst)
	ADDQ(Imm(4), src)
	SUBQ(Imm(2), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// near touches lines of memory.
func near() {
	kernel("near", "func(data *byte, lines int)")
	Doc("near brings lines of 64 bytes from data on near.")
	data, lines := load("data"), load("lines")
	Label("loop")
	TESTQ(lines, lines)
	JZ(LabelRef("done"))
	PREFETCHT0(Mem{Base: data})
	ADDQ(Imm(64), data)
	DECQ(lines)
	JMP(LabelRef("loop"))
	Label("done")
	RET()
}

// widenRows widens bf16 that stand close together.
func widenRows(w isa) {
	name := "widenRows" + w.name
	kernel(name, "func(dst *float32, step int, src *byte, stride, n int)")
	Doc(name + " sets dst[i*step+j] to bf16 j of the row of src that begins i*stride bytes on, for j < 16 and i < n. " + w.needs)
	dst, step, src, stride, n := load("dst"), load("step"), load("src"), load("stride"), load("n")
	SHLQ(Imm(2), step)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	for at := 0; at < 64; at += w.bytes {
		v := w.reg()
		widenTo(v, Mem{Base: src, Disp: at / 2})
		VMOVUPS(v, Mem{Base: dst, Disp: at})
	}
	ADDQ(stride, src)
	ADDQ(step, dst)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// transpose16 transposes a 16x16 block in registers, in four rounds: pairs, fours, then blocks of four lanes twice.
func transpose16(in []VecVirtual) []VecVirtual {
	a := make([]VecVirtual, 16)
	for i := 0; i < 16; i += 2 {
		a[i], a[i+1] = ZMM(), ZMM()
		VUNPCKLPS(in[i+1], in[i], a[i])
		VUNPCKHPS(in[i+1], in[i], a[i+1])
	}
	b := make([]VecVirtual, 16)
	for i := 0; i < 16; i += 4 {
		for j := range 4 {
			b[i+j] = ZMM()
		}
		VUNPCKLPD(a[i+2], a[i], b[i])
		VUNPCKHPD(a[i+2], a[i], b[i+1])
		VUNPCKLPD(a[i+3], a[i+1], b[i+2])
		VUNPCKHPD(a[i+3], a[i+1], b[i+3])
	}
	// b[4g+j] holds, in lane block q, column 4q+j of rows 4g..4g+3.
	out := make([]VecVirtual, 16)
	for j := range 4 {
		lo0, lo1, hi0, hi1 := ZMM(), ZMM(), ZMM(), ZMM()
		VSHUFF32X4(Imm(0x88), b[4+j], b[j], lo0)    // blocks 0, 2 of groups 0 and 1
		VSHUFF32X4(Imm(0xdd), b[4+j], b[j], hi0)    // blocks 1, 3
		VSHUFF32X4(Imm(0x88), b[12+j], b[8+j], lo1) // of groups 2 and 3
		VSHUFF32X4(Imm(0xdd), b[12+j], b[8+j], hi1)
		for q := range 4 {
			out[4*q+j] = ZMM()
		}
		VSHUFF32X4(Imm(0x88), lo1, lo0, out[j])
		VSHUFF32X4(Imm(0xdd), lo1, lo0, out[8+j])
		VSHUFF32X4(Imm(0x88), hi1, hi0, out[4+j])
		VSHUFF32X4(Imm(0xdd), hi1, hi0, out[12+j])
	}
	return out
}
