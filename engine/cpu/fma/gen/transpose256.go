package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// transpose256 is transpose without masks: whole blocks of 16 bytes of every row. Rows i and i+4 share a register, whose
// halves are transposed four by four: as many shuffles as a block of eight takes, and none that crosses the halves.
func transpose256(name string, size int) {
	kernel(name, "func(dst *float32, step int, src *byte, stride, n int)")
	Doc(fmt.Sprintf("%s sets dst[i*step+j] to element i of the row at src + j*stride for j < 16 and i < n, n a multiple of %d.", name, 16/size),
		fmt.Sprintf("An element has %d bytes. It needs AVX2.", size))
	dst, step, src, stride, n := load("dst"), load("step"), load("src"), load("stride"), load("n")
	SHLQ(Imm(2), step)
	var at [4]GPVirtual // of rows 0, 4, 8 and 12
	at[0] = src
	for i := 1; i < 4; i++ {
		at[i] = GP64()
		LEAQ(Mem{Base: at[i-1], Index: stride, Scale: 4}, at[i])
	}
	three := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	row := func(i int) Mem {
		return grid{base: at[i/4], step: stride, three: three}.at(i%4, 0)
	}
	high := upperMask(size)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	for half := range 2 {
		in := make([]VecVirtual, 4)
		for i := range in {
			in[i] = halves(row(8*half+i), row(8*half+i+4))
		}
		to := GP64()
		LEAQ(Mem{Base: dst, Disp: 32 * half}, to)
		transpose4(in, func(_ int, v VecVirtual) {
			for _, column := range widenPairs(v, high) {
				VMOVUPS(column, Mem{Base: to})
				ADDQ(step, to)
			}
		})
		if half == 1 {
			LEAQ(Mem{Base: to, Disp: -32}, dst)
		}
	}
	for _, a := range at {
		ADDQ(Imm(16), a)
	}
	SUBQ(Imm(uint64(16/size)), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// halves is a register of what is at two places.
func halves(low, high Mem) VecVirtual {
	v, x := YMM(), XMM()
	VMOVUPS(low, x)
	VINSERTF128(Imm(1), high, x.AsY(), v)
	return v
}

// upperMask is what widenPairs needs: of elements of 4 bytes nothing.
func upperMask(size int) VecVirtual {
	if size == 4 {
		return nil
	}
	mask, low, high := GP32(), XMM(), YMM()
	MOVL(U32(0xffff0000), mask)
	MOVD(mask, low)
	VPBROADCASTD(low, high)
	return high
}

// widenPairs makes a register of pairs of bf16 into two registers. Without a mask there are no pairs.
func widenPairs(v, high VecVirtual) []VecVirtual {
	if high == nil {
		return []VecVirtual{v}
	}
	first := YMM()
	VPSLLD(Imm(16), v, first)
	VPAND(high, v, v)
	return []VecVirtual{first, v}
}

// transposeListed256 is transpose of listed rows, eight at a time: as many addresses have room.
func transposeListed256() {
	kernel("transposeListed256", "func(dst *float32, step int, src *byte, stride, n int, list *int32)")
	Doc("transposeListed256 sets dst[i*step+j] to float i of the row at src + list[j]*stride for j < 8 and i < n, n a multiple of 16.",
		"Meanwhile rows that list names 16 places on are brought near. It needs AVX2.")
	dst, step, src, stride, list := load("dst"), load("step"), load("src"), load("stride"), load("list")
	SHLQ(Imm(2), step)
	var rows [8]GPVirtual
	for i := range rows {
		rows[i] = GP64()
		listedRow(rows[i], list, 4*i, stride, src)
	}
	at := GP64()
	XORQ(at, at)
	Label("loop")
	for i := range rows {
		next := GP64()
		listedRow(next, list, 64+4*i, stride, src)
		PREFETCHT0(Mem{Base: next, Index: at, Scale: 4})
	}
	for block := range 4 {
		in := make([]VecVirtual, 4)
		for i := range in {
			in[i] = halves(Mem{Base: rows[i], Index: at, Scale: 4, Disp: 16 * block}, Mem{Base: rows[i+4], Index: at, Scale: 4, Disp: 16 * block})
		}
		transpose4(in, func(_ int, v VecVirtual) {
			VMOVUPS(v, Mem{Base: dst})
			ADDQ(step, dst)
		})
	}
	ADDQ(Imm(16), at)
	n := GP64()
	Load(Param("n"), n)
	CMPQ(at, n)
	JLT(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
