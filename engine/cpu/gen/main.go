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
	zmm.transpose()
	unpack4()
	zmm.rows()
	for _, rows := range []int{4, 2, 1} {
		zmm.nibbleDots(rows)
	}
	zmm.elementwise()
	for _, heads := range []int{4, 2, 1} {
		zmm.scores(heads)
	}
	for _, n := range []int{4, 2, 1} {
		zmm.columnSums(n)
	}
	ymm.transpose()
	ymm.rows()
	for _, rows := range []int{4, 2, 1} {
		ymm.nibbleDots(rows)
	}
	ymm.elementwise()
	for _, heads := range []int{4, 2, 1} {
		ymm.scores(heads)
	}
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
