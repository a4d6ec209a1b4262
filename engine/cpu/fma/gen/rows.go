package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// listed is dots with rows of values that are wherever a list says.
func listed(w isa, rows, vecs int) {
	name := fmt.Sprintf("listed%sx%dx%d", w.name, rows, vecs)
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, values *float32, stride int, list *int32, n int, first bool)")
	Doc(fmt.Sprintf("%s adds x[r*ldx+i] * values[list[i]*stride+j] to c[r*ldc+j], fused, i < n ascending, for r < %d and j < %d.", name, rows, vecs*w.bytes/4),
		"c starts at zero if first. Meanwhile the row that list names eight places on is brought near. "+w.needs)
	x := newGrid(load("x"), load("ldx"), rows)
	values, stride, list, n := load("values"), load("stride"), load("list"), load("n")
	SHLQ(Imm(2), stride)
	acc := make([][]VecVirtual, rows)
	for r := range acc {
		for range vecs {
			acc[r] = append(acc[r], w.reg())
		}
	}
	begin(w, acc)
	row := GP64()
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	listedRow(row, list, 32, stride, values)
	for line := 0; line < vecs*w.bytes; line += 64 {
		PREFETCHT0(Mem{Base: row, Disp: line})
	}
	listedRow(row, list, 0, stride, values)
	chain(w, acc, x, func(v int) Mem { return Mem{Base: row, Disp: v * w.bytes} })
	ADDQ(Imm(4), list)
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

// listedRow sets row to where the row is that the list names at disp.
func listedRow(row, list GPVirtual, disp int, stride, from GPVirtual) {
	MOVLQSX(Mem{Base: list, Disp: disp}, row)
	IMULQ(stride, row)
	ADDQ(from, row)
}
