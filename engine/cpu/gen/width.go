package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// width is the bytes of the registers that a kernel computes in.
type width int

const (
	ymm width = 32
	zmm width = 64
)

// floats is how many stand side by side in a register.
func (w width) floats() int { return int(w) / 4 }

// bytes is the size of a register, or where register i of a row begins.
func (w width) bytes(i int) int { return int(w) * i }

// name is that of a kernel.
func (w width) name(base string) string { return fmt.Sprint(base, 8*w) }

func (w width) needs() string {
	if w == ymm {
		return "It needs AVX2, FMA and F16C."
	}
	return "It needs AVX-512F."
}

func (w width) register() VecVirtual {
	if w == ymm {
		return YMM()
	}
	return ZMM()
}

func (w width) registers(n int) []VecVirtual {
	r := make([]VecVirtual, n)
	for i := range r {
		r[i] = w.register()
	}
	return r
}

// clear makes a register zero.
func (w width) clear(r VecVirtual) {
	if w == ymm {
		VXORPS(r, r, r)
		return
	}
	VPXORD(r, r, r)
}

// move loads integers.
func (w width) move(from Mem, r VecVirtual) {
	if w == ymm {
		VMOVDQU(from, r)
		return
	}
	VMOVDQU32(from, r)
}

// and keeps the bits of r that mask has.
func (w width) and(mask, r VecVirtual) {
	if w == ymm {
		VPAND(mask, r, r)
		return
	}
	VPANDD(mask, r, r)
}

// zeros are n registers of sums that begin.
func (w width) zeros(n int) []VecVirtual {
	acc := make([]VecVirtual, n)
	for i := range acc {
		acc[i] = w.register()
		w.clear(acc[i])
	}
	return acc
}

// store writes registers and returns.
func (w width) store(to Register, acc []VecVirtual) {
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: to, Disp: w.bytes(i)})
	}
	VZEROUPPER()
	RET()
}

// broadcast loads a float32 parameter into every lane, straight from memory: MOVSS, which Load gives, is an old
// instruction that waits long for the upper halves of registers in use.
func (w width) broadcast(param string) VecVirtual {
	at, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	r := w.register()
	VBROADCASTSS(at.Addr, r)
	return r
}

// factor is a float32 in memory that every lane is multiplied with: from there where instructions can spread it, else
// from a register that it was spread in.
type factor struct {
	at     Mem
	spread VecVirtual
}

func (w width) factor(at Mem) factor {
	f := factor{at: at}
	if w == ymm {
		f.spread = YMM()
		VBROADCASTSS(at, f.spread)
	}
	return f
}

// times sets r to the product with x, which may be in memory where the factor is in a register.
func (f factor) times(x Op, r VecVirtual) {
	if f.spread != nil {
		VMULPS(x, f.spread, r)
		return
	}
	VMULPS_BCST(f.at, x, r)
}

// each is loop and the return.
func (w width) each(params []string, body func(at []Mem)) {
	w.loop(params, func(at []Mem, _ int) { body(at) })
	VZEROUPPER()
	RET()
}

// loop goes over n floats, 16 at a time, with the pointers of params moving along: body takes a register of them, which
// is part 0, 1, ... of the 16.
func (w width) loop(params []string, body func(at []Mem, part int)) {
	pointers := make([]Register, len(params))
	for i, p := range params {
		pointers[i] = Load(Param(p), GP64())
	}
	n := Load(Param("n"), GP64())
	Label("loop")
	CMPQ(n, Imm(16))
	JL(LabelRef("done"))
	for part := range 16 / w.floats() {
		at := make([]Mem, len(params))
		for i, p := range pointers {
			at[i] = Mem{Base: p, Disp: w.bytes(part)}
		}
		body(at, part)
	}
	for _, p := range pointers {
		ADDQ(Imm(64), p)
	}
	SUBQ(Imm(16), n)
	JMP(LabelRef("loop"))
	Label("done")
}

// begin begins a kernel over n floats.
func (w width) begin(base, signature, doc string) {
	kernel(w.name(base), signature)
	Doc(w.name(base)+" "+doc, "n is a multiple of 16. "+w.needs())
}
