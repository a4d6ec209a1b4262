// Command gen writes the assembly of engine/cpu: go generate ./engine/cpu.
//
// Every kernel here computes the bits of its plain Go counterpart: lanes are outputs, columns or elements, never
// parts of one sum, and a product is rounded before it is added. Start reading at main.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	for _, rows := range []int{8, 4, 2, 1} {
		dots512(rows)
	}
	for _, rows := range []int{4, 2, 1} {
		dots256(rows)
	}
	transpose512()
	unpack4x512()
	zmm.rows()
	for _, rows := range []int{4, 2, 1} {
		nibbleDots512(rows)
	}
	zmm.elementwise()
	for _, heads := range []int{4, 2, 1} {
		scores512(heads)
	}
	for _, n := range []int{4, 2, 1} {
		zmm.columnSums(n)
	}
	ymm.rows()
	ymm.elementwise()
	for _, n := range []int{8, 4, 2} {
		ymm.columnSums(n)
	}
	Generate()
}

// columnSums are the kernels for n registers of columns.
func (w width) columnSums(n int) {
	w.gatherSum(n)
	w.gatherAdd(n)
	w.decay(n)
	w.update(n)
}

const lanes = 32 // outputs of a panel

func name(base string, n int) string { return base + map[int]string{8: "8", 4: "4", 2: "2", 1: "1"}[n] }

// kernel begins a function that keeps none of its pointers, so that what they point to may stay on the caller's stack.
func kernel(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

// rowPointers loads the addresses of the rows of x.
func rowPointers(rows int) []GPVirtual {
	table := Load(Param("x"), GP64())
	xs := make([]GPVirtual, rows)
	for i := range xs {
		xs[i] = GP64()
		MOVQ(Mem{Base: table, Disp: 8 * i}, xs[i])
	}
	return xs
}

// dots512 is rows x 32 dot products with AVX-512.
func dots512(rows int) {
	kernel(name("dots512x", rows), "func(c *float32, x **float32, panel *float32, n int)")
	Doc(name("dots512x", rows)+" sets c[r*32+j] to the dot product of row x[r] [n] and column j of panel [n, 32].", "It needs AVX-512F.")
	xs := rowPointers(rows)
	panel, n, k := Load(Param("panel"), GP64()), Load(Param("n"), GP64()), GP64()
	acc := make([][2]VecVirtual, rows)
	for r := range acc {
		for h := range 2 {
			acc[r][h] = ZMM()
			VPXORD(acc[r][h], acc[r][h], acc[r][h])
		}
	}
	XORQ(k, k)
	Label("loop")
	CMPQ(k, n)
	JGE(LabelRef("done"))
	w := [2]VecVirtual{ZMM(), ZMM()}
	VMOVUPS(Mem{Base: panel}, w[0])
	VMOVUPS(Mem{Base: panel, Disp: 64}, w[1])
	for r := range acc {
		for h := range 2 {
			t := ZMM()
			VMULPS_BCST(Mem{Base: xs[r], Index: k, Scale: 4}, w[h], t)
			VADDPS(t, acc[r][h], acc[r][h])
		}
	}
	ADDQ(U32(4*lanes), panel)
	INCQ(k)
	JMP(LabelRef("loop"))
	Label("done")
	c := Load(Param("c"), GP64())
	for r := range acc {
		for h := range 2 {
			VMOVUPS(acc[r][h], Mem{Base: c, Disp: 4*lanes*r + 64*h})
		}
	}
	VZEROUPPER()
	RET()
}

// dots256 is rows x 16 dot products with AVX: half a panel.
func dots256(rows int) {
	kernel(name("dots256x", rows), "func(c *float32, x **float32, panel *float32, n int)")
	Doc(name("dots256x", rows)+" is dots512 for the first 16 columns of the panel that panel points into.", "It needs AVX.")
	xs := rowPointers(rows)
	panel, n, k := Load(Param("panel"), GP64()), Load(Param("n"), GP64()), GP64()
	acc := make([][2]VecVirtual, rows)
	for r := range acc {
		for h := range 2 {
			acc[r][h] = YMM()
			VXORPS(acc[r][h], acc[r][h], acc[r][h])
		}
	}
	XORQ(k, k)
	Label("loop")
	CMPQ(k, n)
	JGE(LabelRef("done"))
	w := [2]VecVirtual{YMM(), YMM()}
	VMOVUPS(Mem{Base: panel}, w[0])
	VMOVUPS(Mem{Base: panel, Disp: 32}, w[1])
	for r := range acc {
		x := YMM()
		VBROADCASTSS(Mem{Base: xs[r], Index: k, Scale: 4}, x)
		for h := range 2 {
			t := YMM()
			VMULPS(x, w[h], t)
			VADDPS(t, acc[r][h], acc[r][h])
		}
	}
	ADDQ(U32(4*lanes), panel)
	INCQ(k)
	JMP(LabelRef("loop"))
	Label("done")
	c := Load(Param("c"), GP64())
	for r := range acc {
		for h := range 2 {
			VMOVUPS(acc[r][h], Mem{Base: c, Disp: 4*lanes*r + 32*h})
		}
	}
	VZEROUPPER()
	RET()
}

// transpose512 turns 16 rows into 16 columns of a panel.
func transpose512() {
	kernel("transpose512", "func(panel *float32, rows *float32, n int)")
	Doc("transpose512 sets panel[k*32+j] = rows[j*n+k] for j < 16 and k < n; n is a multiple of 16.", "It needs AVX-512F.")
	panel, src, n := Load(Param("panel"), GP64()), Load(Param("rows"), GP64()), Load(Param("n"), GP64())
	stride, left := GP64(), GP64()
	MOVQ(n, stride)
	SHLQ(Imm(2), stride)
	MOVQ(n, left)
	Label("loop")
	CMPQ(left, Imm(16))
	JL(LabelRef("done"))
	at := GP64()
	MOVQ(src, at)
	in := make([]VecVirtual, 16)
	for i := range in {
		in[i] = ZMM()
		VMOVUPS(Mem{Base: at}, in[i])
		ADDQ(stride, at)
	}
	out := transpose16(in)
	for i := range out {
		VMOVUPS(out[i], Mem{Base: panel, Disp: 4 * lanes * i})
	}
	ADDQ(Imm(64), src)
	ADDQ(U32(4*lanes*16), panel)
	SUBQ(Imm(16), left)
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

// unpack4x512 decodes 4-bit codes through a register of their 16 values.
func unpack4x512() {
	kernel("unpack4x512", "func(dst *float32, codes *byte, n int, scale, bias float32)")
	Doc("unpack4x512 sets dst[i] to scale * code i + bias, lowest nibble first, for i < n; n is a multiple of 16.", "It needs AVX-512F.")
	dst, codes, n := Load(Param("dst"), GP64()), Load(Param("codes"), GP64()), Load(Param("n"), GP64())
	values, bias, word, shift := zmm.broadcast("scale"), zmm.broadcast("bias"), ZMM(), ZMM()
	nibbles := GLOBL("nibbles", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, F32(i))
	}
	VMULPS(nibbles, values, values)
	VADDPS(bias, values, values)
	words := GLOBL("nibbleWords", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(i/8))
	}
	shifts := GLOBL("nibbleShifts", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(4*(i%8)))
	}
	VMOVDQU32(words, word)
	VMOVDQU32(shifts, shift)
	Label("loop")
	CMPQ(n, Imm(16))
	JL(LabelRef("done"))
	v := ZMM()
	VPBROADCASTQ(Mem{Base: codes}, v)
	VPERMD(v, word, v)
	VPSRLVD(shift, v, v)
	VPERMPS(values, v, v) // takes the low four bits of an index
	VMOVUPS(v, Mem{Base: dst})
	ADDQ(Imm(8), codes)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
