// Command gen writes the assembly of cache/twin: go generate ./cache/twin.
//
// SHA-256 is a chain: each instruction of its rounds waits for the one before it, and a processor could begin several in that
// time. A kernel for two streams gives it the rounds of two messages in turns. Start reading at main.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	table("constants", constants())
	table("bigEndian", []uint32{0x00010203, 0x04050607, 0x08090a0b, 0x0c0d0e0f})
	blocks(1)
	blocks(2)
	features()
	Generate()
}

func table(name string, words []uint32) {
	GLOBL(name, RODATA|NOPTR)
	for i, w := range words {
		DATA(4*i, U32(w))
	}
}

// constants are the first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
func constants() []uint32 {
	var out []uint32
	for p := uint64(2); len(out) < 64; p++ {
		if isPrime(p) {
			out = append(out, cubeRootFraction(p))
		}
	}
	return out
}

func isPrime(p uint64) bool {
	for d := uint64(2); d*d <= p; d++ {
		if p%d == 0 {
			return false
		}
	}
	return true
}

// stream is one message on its way through a kernel.
type stream struct {
	h, p       GPVirtual // its state, its next block
	abef, cdgh VecPhysical
	w          [4]VecPhysical // four words of the schedule each
	t          VecPhysical
	saved      Mem // the state before the block
}

// streams share the sixteen registers. X0 is an operand of the rounds that cannot be chosen.
func streams(n int) []stream {
	all := []stream{
		{abef: X1, cdgh: X2, w: [4]VecPhysical{X3, X4, X5, X6}, t: X7},
		{abef: X8, cdgh: X9, w: [4]VecPhysical{X10, X11, X12, X13}, t: X7},
	}
	return all[:n]
}

// bigEndianWords is the register that turns the bytes of words around.
func bigEndianWords() VecPhysical { return X14 }

// blocks hashes whole blocks of n messages, as many of each.
func blocks(n int) {
	name := [...]string{1: "blocks1", 2: "blocks2"}[n]
	signature := [...]string{1: "func(h *[8]uint32, p *byte, n int)", 2: "func(h, h2 *[8]uint32, p, p2 *byte, n int)"}[n]
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(name+" adds n whole blocks to the state of each message.", "It needs SHA, SSSE3 and SSE4.1.")
	all := streams(n)
	for i := range all {
		s := &all[i]
		suffix := [...]string{"", "2"}[i]
		s.h, s.p = Load(Param("h"+suffix), GP64()).(GPVirtual), Load(Param("p"+suffix), GP64()).(GPVirtual)
		s.saved = AllocLocal(32)
		s.load()
	}
	left := Load(Param("n"), GP64())
	MOVOU(NewDataAddr(NewStaticSymbol("bigEndian"), 0), bigEndianWords())
	Label("loop")
	TESTQ(left, left)
	JZ(LabelRef("done"))
	for i := range all {
		MOVOU(all[i].abef, all[i].saved)
		MOVOU(all[i].cdgh, all[i].saved.Offset(16))
	}
	for group := range 16 {
		for i := range all {
			all[i].schedule(group)
		}
		for i := range all {
			all[i].rounds(group)
		}
	}
	for i := range all {
		all[i].add()
	}
	DECQ(left)
	JMP(LabelRef("loop"))
	Label("done")
	for i := range all {
		all[i].store()
	}
	RET()
}

// load brings a state into the order of the rounds: a b e f and c d g h, the first of them highest.
func (s *stream) load() {
	MOVOU(Mem{Base: s.h}, s.t)
	MOVOU(Mem{Base: s.h, Disp: 16}, s.cdgh)
	PSHUFD(Imm(0xb1), s.t, s.abef)
	PSHUFD(Imm(0x1b), s.cdgh, s.cdgh)
	MOVO(s.abef, s.t)
	PALIGNR(Imm(8), s.cdgh, s.abef)
	PBLENDW(Imm(0xf0), s.t, s.cdgh)
}

// store is the opposite of load.
func (s *stream) store() {
	PSHUFD(Imm(0x1b), s.abef, s.t)
	PSHUFD(Imm(0xb1), s.cdgh, s.cdgh)
	MOVO(s.t, s.abef)
	PBLENDW(Imm(0xf0), s.cdgh, s.abef)
	PALIGNR(Imm(8), s.t, s.cdgh)
	MOVOU(s.abef, Mem{Base: s.h})
	MOVOU(s.cdgh, Mem{Base: s.h, Disp: 16})
}

// schedule makes the four words of a group: those of the message first, then
//
//	w[t] = σ1(w[t-2]) + w[t-7] + σ0(w[t-15]) + w[t-16]
func (s *stream) schedule(group int) {
	w := func(i int) VecPhysical { return s.w[(group+i)%4] } // i groups on
	if group < 4 {
		MOVOU(Mem{Base: s.p, Disp: 16 * group}, w(0))
		PSHUFB(bigEndianWords(), w(0))
		if group == 3 {
			ADDQ(Imm(64), s.p)
		}
		return
	}
	SHA256MSG1(w(1), w(0))
	MOVO(w(3), s.t)
	PALIGNR(Imm(4), w(2), s.t)
	PADDD(s.t, w(0))
	SHA256MSG2(w(3), w(0))
}

// rounds are the four of a group. Two at a time turn a b e f into what c d g h will be, so the halves change their places.
func (s *stream) rounds(group int) {
	MOVOU(NewDataAddr(NewStaticSymbol("constants"), 16*group), X0)
	PADDD(s.w[group%4], X0)
	SHA256RNDS2(X0, s.abef, s.cdgh)
	PSHUFD(Imm(0x0e), X0, X0)
	SHA256RNDS2(X0, s.cdgh, s.abef)
}

// add ends a block.
func (s *stream) add() {
	MOVOU(s.saved, s.t)
	PADDD(s.t, s.abef)
	MOVOU(s.saved.Offset(16), s.t)
	PADDD(s.t, s.cdgh)
}

// features asks the processor for what package cpu does not tell.
func features() {
	TEXT("hasSHA", NOSPLIT, "func() bool")
	Doc("hasSHA says whether the processor has the instructions of SHA-1 and SHA-256.")
	has := GP8()
	XORL(has.As32(), has.As32())
	XORL(EAX, EAX)
	CPUID()
	CMPL(EAX, Imm(7))
	JL(LabelRef("done"))
	MOVL(U32(7), EAX)
	XORL(ECX, ECX)
	CPUID()
	SHRL(Imm(29), EBX)
	ANDL(Imm(1), EBX)
	MOVL(EBX, has.As32())
	Label("done")
	Store(has, ReturnIndex(0))
	RET()
}
