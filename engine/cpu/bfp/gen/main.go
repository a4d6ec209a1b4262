// Command gen writes the assembly of engine/cpu/bfp: go generate ./engine/cpu/bfp.
//
// Every kernel computes the bits of its plain Go counterpart: lanes are outputs, sums of integers are exact in any order, and
// the float32 operations of a group are those of the package comment. Start reading at main.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	GLOBL("limb", RODATA|NOPTR)
	DATA(0, F32(256))
	split()
	for _, bits := range []int{2, 3, 4, 6, 8} {
		spread(bits)
	}
	for _, rows := range []int{4, 2, 1} {
		product(rows)
	}
	for _, bits := range []int{4, 6, 8} {
		for _, rows := range []int{4, 2, 1} {
			few(bits, rows)
		}
	}
	forAVX2(newNarrow())
	Generate()
}

func forAVX2(n *narrow) {
	n.split()
	for _, bits := range []int{2, 3, 4, 6, 8} {
		n.spread(bits)
	}
	for _, bits := range []int{4, 6, 8} {
		for _, rows := range []int{2, 1} {
			n.product(bits, rows)
			n.few(bits, rows)
		}
	}
}

const (
	limbs = 3
	lanes = 16 // outputs of a register
	needs = "It needs AVX-512 F, BW, VL and VNNI."
)

// kernel begins a function that keeps none of its pointers, so that what they point to may stay on the caller's stack.
func kernel(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

func load(name string) GPVirtual { return Load(Param(name), GP64()).(GPVirtual) }

func zero(v VecVirtual) { VPXORD(v, v, v) }

// period is how many codes fill how many whole words.
func period(bits int) (codes, words int) {
	if 32%bits == 0 {
		return 32 / bits, 1
	}
	return 96 / bits, 3 // of 3 and 6 bits
}

// everywhere is a register whose doublewords are all v.
func everywhere(v uint32) VecVirtual {
	low, to := GP32(), ZMM()
	MOVL(U32(v), low)
	VPBROADCASTD(low, to)
	return to
}

// spreader brings codes into bytes, four of them into a doubleword of every output.
type spreader struct {
	bits  int
	masks []VecVirtual
}

func newSpreader(bits int) spreader {
	s := spreader{bits: bits}
	switch low := uint32(1<<bits - 1); {
	case bits == 8:
	case 32%bits == 0:
		s.masks = []VecVirtual{everywhere(low * 0x01010101)}
	default:
		for i := range 4 {
			s.masks = append(s.masks, everywhere(low<<(8*i)))
		}
	}
	return s
}

// quad takes quad q of a period, whose words are in memory.
func (s spreader) quad(q int, word func(n int) Mem) VecVirtual {
	v := ZMM()
	switch {
	case s.bits == 8:
		VMOVDQU32(word(0), v)
	case 32%s.bits == 0:
		if q == 0 {
			VPANDD(word(0), s.masks[0], v)
			return v
		}
		VPSRLD(Imm(uint64(q*s.bits)), word(0), v)
		VPANDD(s.masks[0], v, v)
	default:
		return s.apart(s.stream(4*s.bits*q, word))
	}
	return v
}

// stream takes the bits of a quad to the low end; what is above them stays.
func (s spreader) stream(at int, word func(n int) Mem) VecVirtual {
	v, n, off := ZMM(), at/32, at%32
	if off == 0 {
		VMOVDQU32(word(n), v)
		return v
	}
	VPSRLD(Imm(uint64(off)), word(n), v)
	if off+4*s.bits > 32 {
		high := ZMM()
		VPSLLD(Imm(uint64(32-off)), word(n+1), high)
		VPORD(high, v, v)
	}
	return v
}

// apart moves four codes side by side into bytes.
func (s spreader) apart(v VecVirtual) VecVirtual {
	to := ZMM()
	VPANDD(s.masks[0], v, to)
	for i := 1; i < 4; i++ {
		VPSLLD(Imm(uint64(8-s.bits)), v, v)
		VPTERNLOGD(Imm(0xf8), s.masks[i], v, to) // to | v & mask
	}
	return to
}
