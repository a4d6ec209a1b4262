// Command gen writes the assembly of engine/cpu/fma: go generate ./engine/cpu/fma.
//
// Every kernel computes the bits of its plain Go counterpart: lanes are outputs or partial sums that the package
// comment names, and a product is fused with its addition. Start reading at main.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	tables()
	for _, shape := range [][2]int{{8, 2}, {8, 1}, {4, 2}, {4, 1}, {2, 4}, {2, 2}, {2, 1}, {1, 8}, {1, 4}, {1, 2}, {1, 1}} {
		dots(wide, shape[0], shape[1])
	}
	for _, shape := range [][2]int{{4, 2}, {2, 4}, {2, 2}, {1, 8}, {1, 4}, {1, 2}} {
		dots(narrow, shape[0], shape[1])
	}
	for _, bits := range []int{2, 3, 4, 6, 8} {
		unpack(wide, bits)
		unpack(narrow, bits)
	}
	for _, bits := range []int{4, 6, 8} {
		for _, rows := range []int{4, 2, 1} {
			for _, halves := range []int{4, 2, 1} {
				few(bits, rows, halves, false)
				few(bits, rows, halves, true)
			}
		}
	}
	for _, bits := range []int{4, 6, 8} {
		for _, rows := range []int{4, 2, 1} {
			fewTiles(bits, rows)
			fewTiles256(bits, rows)
		}
	}
	for _, rows := range []int{4, 2, 1} {
		for _, vecs := range []int{4, 2, 1} {
			fewUpper(rows, vecs)
			listed(wide, rows, vecs)
		}
	}
	for _, shape := range [][2]int{{4, 1}, {2, 2}, {2, 1}, {1, 4}, {1, 2}, {1, 1}} {
		fewUpper256(shape[0], shape[1])
		listed(narrow, shape[0], 2*shape[1])
	}
	transpose("transpose512x32", 4, false)
	transpose("transpose512x16", 2, false)
	transpose("transposeListed512", 4, true)
	gatherPairs()
	near()
	widenRows(wide)
	widenRows(narrow)
	transpose256("transpose256x32", 4)
	transpose256("transpose256x16", 2)
	transposeListed256()
	for _, rows := range []int{8, 6, 4, 2} {
		strip(wide, rows, 2)
		strip(wide, rows, 1)
	}
	for _, rows := range []int{6, 4, 2} {
		strip(narrow, rows, 2)
	}
	pack(8)
	pack(6)
	Generate()
}

// lanes is how many outputs a panel holds side by side.
const lanes = 32

// isa is a width of registers.
type isa struct {
	name  string
	bytes int
	reg   func() VecVirtual
	needs string
}

var (
	wide   = isa{"512", 64, ZMM, "It needs AVX-512F."}
	narrow = isa{"256", 32, YMM, "It needs AVX2 and FMA."}
)

// kernel begins a function that keeps none of its pointers, so that what they point to may stay on the caller's stack.
func kernel(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

func zero(w isa, v VecVirtual) {
	if w.bytes == 64 {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
}

// grid addresses the rows of a matrix with few registers.
type grid struct {
	base, far GPVirtual // of rows 0 and 4
	step      GPVirtual // bytes from one row to the next
	three     GPVirtual // three steps
}

func newGrid(base, step GPVirtual, rows int) grid {
	g := grid{base: base, step: step}
	SHLQ(Imm(2), step)
	if rows > 3 {
		g.three = GP64()
		LEAQ(Mem{Base: step, Index: step, Scale: 2}, g.three)
	}
	if rows > 4 {
		g.far = GP64()
		LEAQ(Mem{Base: base, Index: step, Scale: 4}, g.far)
	}
	return g
}

func (g grid) at(row, disp int) Mem {
	base := g.base
	if row >= 4 {
		base, row = g.far, row-4
	}
	switch row {
	case 0:
		return Mem{Base: base, Disp: disp}
	case 1:
		return Mem{Base: base, Index: g.step, Scale: 1, Disp: disp}
	case 2:
		return Mem{Base: base, Index: g.step, Scale: 2, Disp: disp}
	}
	return Mem{Base: base, Index: g.three, Scale: 1, Disp: disp}
}

func (g grid) advance(bytes int) {
	ADDQ(Imm(uint64(bytes)), g.base)
	if g.far != nil {
		ADDQ(Imm(uint64(bytes)), g.far)
	}
}

func load(name string) GPVirtual { return Load(Param(name), GP64()).(GPVirtual) }

// dots is rows x (vecs registers) chains of fused products. More than a panel's registers go on in the next panel.
func dots(w isa, rows, vecs int) {
	name := fmt.Sprintf("dots%sx%dx%d", w.name, rows, vecs)
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, panel *float32, next, step, n int, first bool)")
	Doc(fmt.Sprintf("%s adds x[r*ldx+i] * panel[i*step+j] to c[r*ldc+j], fused, i < n ascending, for r < %d and j < %d.", name, rows, vecs*w.bytes/4),
		"c starts at zero if first. Columns from 32 on are those of the panels that follow, `next` floats apart.", w.needs)
	x := newGrid(load("x"), load("ldx"), rows)
	panel, n, step := load("panel"), load("n"), load("step")
	SHLQ(Imm(2), step)
	perPanel := 4 * lanes / w.bytes
	panels := []GPVirtual{panel}
	if vecs > perPanel {
		next := load("next")
		SHLQ(Imm(2), next)
		for i := 1; i < vecs/perPanel; i++ {
			p := GP64()
			LEAQ(Mem{Base: panels[i-1], Index: next, Scale: 1}, p)
			panels = append(panels, p)
		}
	}
	acc := make([][]VecVirtual, rows)
	for r := range acc {
		for range vecs {
			acc[r] = append(acc[r], w.reg())
		}
	}
	begin(w, acc)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	at := func(v int) Mem { return Mem{Base: panels[v/perPanel], Disp: v % perPanel * w.bytes} }
	chain(w, acc, x, at)
	for _, p := range panels {
		ADDQ(step, p)
	}
	x.advance(4)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	c := newGrid(load("c"), load("ldc"), rows)
	for r := range acc {
		for v := range acc[r] {
			VMOVUPS(acc[r][v], c.at(r, v*w.bytes))
		}
	}
	VZEROUPPER()
	RET()
}

// begin sets the chains to zero or to c.
func begin(w isa, acc [][]VecVirtual) {
	first := Load(Param("first"), GP8())
	for r := range acc {
		for _, a := range acc[r] {
			zero(w, a)
		}
	}
	TESTB(first, first)
	JNZ(LabelRef("loop"))
	c := newGrid(load("c"), load("ldc"), len(acc))
	for r := range acc {
		for v := range acc[r] {
			VMOVUPS(c.at(r, v*w.bytes), acc[r][v])
		}
	}
}

// chain adds the products of one input.
func chain(w isa, acc [][]VecVirtual, x grid, at func(v int) Mem) {
	if len(acc) == 1 {
		xv := w.reg()
		VBROADCASTSS(x.at(0, 0), xv)
		for v, a := range acc[0] {
			VFMADD231PS(at(v), xv, a)
		}
		return
	}
	ws := make([]VecVirtual, len(acc[0]))
	for v := range ws {
		ws[v] = w.reg()
		VMOVUPS(at(v), ws[v])
	}
	for r := range acc {
		xv := w.reg()
		VBROADCASTSS(x.at(r, 0), xv)
		for v, a := range acc[r] {
			VFMADD231PS(ws[v], xv, a)
		}
	}
}

// unpack decodes affine codes of 16 outputs into 16 columns of a panel.
func unpack(w isa, bits int) {
	name := fmt.Sprintf("unpack%sx%d", w.name, bits)
	kernel(name, "func(panel, words *float32, step int, scales, biases *float32, groups, periods int)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s sets panel[i*32+j] to scale * code + bias, fused, for the inputs i of all groups and j < 16.", name),
		fmt.Sprintf("A group is `periods` times %d words [*, step], of which the first 16 hold %d codes of %d bits each; scales and biases are [groups, 16].", width, codes, bits), w.needs)
	parts := 64 / w.bytes // registers of 16 columns
	table, mask := codeTable(w, bits), w.reg()
	if table == nil {
		low := GP32()
		MOVL(U32(1<<bits-1), low)
		m := XMM()
		MOVD(low, m)
		VPBROADCASTD(m, mask)
	}
	for part := range parts {
		suffix, disp := fmt.Sprint(part), part*w.bytes
		panel, words, scales, biases := load("panel"), load("words"), load("scales"), load("biases")
		groups, periods, left, step := load("groups"), load("periods"), GP64(), load("step")
		SHLQ(Imm(2), step)
		Label("group" + suffix)
		TESTQ(groups, groups)
		JZ(LabelRef("done" + suffix))
		scale, bias := w.reg(), w.reg()
		VMOVUPS(Mem{Base: scales, Disp: disp}, scale)
		VMOVUPS(Mem{Base: biases, Disp: disp}, bias)
		ADDQ(Imm(64), scales)
		ADDQ(Imm(64), biases)
		DECQ(groups)
		MOVQ(periods, left)
		Label("period" + suffix)
		TESTQ(left, left)
		JZ(LabelRef("group" + suffix))
		in := make([]VecVirtual, width)
		for d := range in {
			in[d] = w.reg()
			VMOVUPS(Mem{Base: words, Disp: disp}, in[d])
			ADDQ(step, words)
		}
		for i := range codes {
			v := field(w, in, bits, i)
			if table != nil {
				VPERMPS(table, v, v)
			} else {
				if w.bytes == 64 {
					VPANDD(mask, v, v)
				} else {
					VPAND(mask, v, v)
				}
				VCVTDQ2PS(v, v)
			}
			VFMADD213PS(bias, scale, v)
			VMOVUPS(v, Mem{Base: panel, Disp: 4*lanes*i + disp})
		}
		ADDQ(U32(uint32(4*lanes*codes)), panel)
		DECQ(left)
		JMP(LabelRef("period" + suffix))
		Label("done" + suffix)
	}
	VZEROUPPER()
	RET()
}

// period is how many codes fill how many whole words.
func period(bits int) (codes, words int) {
	if 32%bits == 0 {
		return 32 / bits, 1
	}
	return 96 / bits, 3 // of 3 and 6 bits
}

// codeTable is a register of the values of all codes, by their low four bits, where that is enough.
func codeTable(w isa, bits int) VecVirtual {
	if w.bytes != 64 || bits > 4 {
		return nil
	}
	table := w.reg()
	VMOVUPS(NewDataAddr(NewStaticSymbol(tableName(bits)), 0), table)
	return table
}

func tableName(bits int) string { return fmt.Sprintf("codes%d", bits) }

// tables writes the values of all codes.
func tables() {
	for _, bits := range []int{2, 3, 4} {
		GLOBL(tableName(bits), RODATA|NOPTR)
		for i := range 16 {
			DATA(4*i, F32(i&(1<<bits-1)))
		}
	}
}

// field takes code i of a period to the low end of every lane; what is above it stays.
func field(w isa, in []VecVirtual, bits, i int) VecVirtual {
	at, v := bits*i, w.reg()
	d, off := at/32, at%32
	if off == 0 {
		if w.bytes == 64 {
			VMOVDQA32(in[d], v)
		} else {
			VMOVDQA(in[d], v)
		}
		return v
	}
	VPSRLD(Imm(uint64(off)), in[d], v)
	if off+bits > 32 {
		high := w.reg()
		VPSLLD(Imm(uint64(32-off)), in[d+1], high)
		if w.bytes == 64 {
			VPORD(high, v, v)
		} else {
			VPOR(high, v, v)
		}
	}
	return v
}
