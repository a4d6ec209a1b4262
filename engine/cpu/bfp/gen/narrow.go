package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// With AVX2, codes and limbs are multiplied in pairs, whose sums have 16 bits: as many quads are added there as are sure to fit,
// then the sums go on in 32 bits, in memory. There 256 H + M is one sum, which fits: made a float32 it is rounded as
// fma(H, 256, M) is, once.

const (
	narrowLanes = 8 // outputs of a register
	needsAVX2   = "It needs AVX2 and FMA."
)

// constant is a register's length of one doubleword, in memory.
func constant(name string, v uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range narrowLanes {
		DATA(4*i, U32(v))
	}
	return m
}

// narrow is what all kernels for AVX2 share.
type narrow struct {
	ones, sixteens Mem    // of 16 bits
	high           [2]Mem // 256 times these
	shift          Mem    // 256, a float32
	nibbles        Mem    // the low half of every byte
	fields         map[int][]Mem
}

func newNarrow() *narrow {
	n := &narrow{ones: constant("ones", 0x00010001), sixteens: constant("sixteens", 0x00100010),
		high: [2]Mem{constant("high", 0x01000100), constant("highSixteens", 0x10001000)}, shift: constant("shift", 0x43800000),
		nibbles: constant("nibbles", 0x0f0f0f0f), fields: map[int][]Mem{2: {constant("pairs", 0x03030303)}}}
	n.fields[4] = []Mem{n.nibbles}
	for _, bits := range []int{3, 6} {
		for i := range 4 {
			n.fields[bits] = append(n.fields[bits], constant(fmt.Sprintf("field%d_%d", bits, i), (1<<bits-1)<<(8*i)))
		}
	}
	return n
}

// masked is v & mask.
func masked(v VecVirtual, mask Mem) VecVirtual {
	VPAND(mask, v, v)
	return v
}

// shifted is what is in memory, shifted right.
func shifted(from Mem, by int) VecVirtual {
	v := YMM()
	VMOVDQU(from, v)
	if by > 0 {
		VPSRLD(Imm(uint64(by)), v, v)
	}
	return v
}

// quad is quad q of a period of codes, in bytes.
func (n *narrow) quad(bits, q int, word func(n int) Mem) VecVirtual {
	switch {
	case bits == 8:
		return shifted(word(0), 0)
	case 32%bits == 0:
		return masked(shifted(word(0), bits*q), n.fields[bits][0])
	}
	at := 4 * bits * q
	v := shifted(word(at/32), at%32)
	if at%32+4*bits > 32 {
		high := YMM()
		VMOVDQU(word(at/32+1), high)
		VPSLLD(Imm(uint64(32-at%32)), high, high)
		VPOR(high, v, v)
	}
	to, field := YMM(), YMM()
	VPAND(n.fields[bits][0], v, to)
	for i := 1; i < 4; i++ {
		VPSLLD(Imm(uint64(8-bits)), v, v)
		VPAND(n.fields[bits][i], v, field)
		VPOR(field, to, to)
	}
	return to
}

// multiplier writes a kernel that multiplies rows with outputs side by side: some registers of them at a time, group after group.
type multiplier struct {
	*narrow
	rows, vecs int
	planes     int // halves of a code: 2 where whole ones do not fit into sums of 16 bits
	outputs    int
	quads      int                              // that are unrolled
	most       int                              // of them that fit into sums of 16 bits
	bytes      int                              // of the codes of these quads, all outputs
	quad       func(h, q, plane int) VecVirtual // of register h
	begun      func()                           // what is done beside them
	sides      func(h int) (scale, bias VecVirtual)
	onward     []step

	x     []GPVirtual // the limbs of each row
	group GPVirtual   // inputs of a group
	c     []GPVirtual // the products of each row
	words GPVirtual
	sums  Mem // of 32 bits: [rows, vecs, limbs] registers
}

// step is a pointer that goes on by `each` for a register of outputs, and by `whole` for a group.
type step struct {
	at          GPVirtual
	each, whole int
}

// load loads the parameters c, ldc, x, ldx and group, and words of that name.
func (m *multiplier) load(words string) {
	m.group, m.words = load("group"), load(words)
	m.c, m.x = []GPVirtual{load("c")}, []GPVirtual{load("x")}
	if m.rows > 1 {
		ldc, ldx := load("ldc"), load("ldx")
		m.c, m.x = append(m.c, GP64()), append(m.x, GP64())
		LEAQ(Mem{Base: m.c[0], Index: ldc, Scale: 4}, m.c[1])
		LEAQ(Mem{Base: m.x[0], Index: ldx, Scale: 1}, m.x[1])
	}
	m.sums = AllocLocal(32 * m.rows * m.vecs * 2)
}

// sum is where a sum of 32 bits is kept: 0 the high one, 1 the low one.
func (m *multiplier) sum(r, h, s int) Mem { return m.sums.Offset(32 * ((r*m.vecs+h)*2 + s)) }

// limb is where limb l of quad q of row r is.
func (m *multiplier) limb(r, l, q int) Mem {
	at := Mem{Base: m.x[r], Disp: 4 * q}
	if l > 0 {
		at.Index, at.Scale = m.group, uint8(l)
	}
	return at
}

// run writes the loops.
func (m *multiplier) run(groups GPVirtual) {
	none := YMM()
	VPXOR(none, none, none)
	for _, c := range m.c {
		for at := 0; at < 4*m.outputs; at += 32 {
			VMOVDQU(none, Mem{Base: c, Disp: at})
		}
	}
	across, left := GP64(), GP64()
	Label("group")
	MOVQ(U32(uint32(m.outputs/(narrowLanes*m.vecs))), across)
	Label("outputs")
	none = YMM()
	VPXOR(none, none, none)
	for at := range m.rows * m.vecs * 2 {
		VMOVDQU(none, m.sums.Offset(32*at))
	}
	MOVQ(m.group, left)
	Label("quads")
	if m.begun != nil {
		m.begun()
	}
	for q := 0; q < m.quads; q += m.most {
		m.add(q, min(m.quads, q+m.most))
	}
	for _, x := range m.x {
		ADDQ(Imm(uint64(4*m.quads)), x)
	}
	ADDQ(U32(uint32(m.bytes)), m.words)
	SUBQ(Imm(uint64(4*m.quads)), left)
	JNZ(LabelRef("quads"))
	m.end()
	m.next(across, groups)
	VZEROUPPER()
	RET()
}

// add adds the products of the quads [from, to).
func (m *multiplier) add(from, to int) {
	acc := make(map[[4]int]VecVirtual)
	for q := from; q < to; q++ {
		var w [2][2]VecVirtual
		for h := range m.vecs {
			for p := range m.planes {
				w[h][p] = m.quad(h, q, p)
			}
		}
		for r := range m.rows {
			for l := range limbs {
				x := YMM()
				VPBROADCASTD(m.limb(r, l, q), x)
				for h := range m.vecs {
					for p := range m.planes {
						m.pairs(acc, [4]int{r, h, l, p}, x, w[h][p])
					}
				}
			}
		}
	}
	for r := range m.rows {
		for h := range m.vecs {
			m.keep(acc, r, h)
		}
	}
}

// pairs adds products to one of the sums of 16 bits.
func (m *multiplier) pairs(acc map[[4]int]VecVirtual, of [4]int, x, w VecVirtual) {
	if sum, ok := acc[of]; ok {
		product := YMM()
		VPMADDUBSW(x, w, product)
		VPADDW(product, sum, sum)
		return
	}
	acc[of] = YMM()
	VPMADDUBSW(x, w, acc[of])
}

// keep adds sums of 16 bits to those of 32.
func (m *multiplier) keep(acc map[[4]int]VecVirtual, r, h int) {
	for l := range limbs {
		times, sixteen := m.ones, m.sixteens
		if l == 0 {
			times, sixteen = m.high[0], m.high[1]
		}
		sum := acc[[4]int{r, h, l, 0}]
		VPMADDWD(times, sum, sum)
		if m.planes > 1 {
			upper := acc[[4]int{r, h, l, 1}]
			VPMADDWD(sixteen, upper, upper)
			VPADDD(upper, sum, sum)
		}
	}
	high, middle, low := acc[[4]int{r, h, 0, 0}], acc[[4]int{r, h, 1, 0}], acc[[4]int{r, h, 2, 0}]
	VPADDD(middle, high, high)
	for i, sum := range []VecVirtual{high, low} {
		VPADDD(m.sum(r, h, i), sum, sum)
		VMOVDQU(sum, m.sum(r, h, i))
	}
}

// end adds the sums of a group to the products.
func (m *multiplier) end() {
	for h := range m.vecs {
		scale, bias := m.sides(h)
		for r := range m.rows {
			a := [2]VecVirtual{YMM(), YMM()}
			for i, v := range a {
				VCVTDQ2PS(m.sum(r, h, i), v)
			}
			VFMADD132PS(m.shift, a[1], a[0])
			side := Mem{Base: m.x[r], Index: m.group, Scale: 2} // x stands behind the first limb
			unit, total, y := YMM(), YMM(), YMM()
			VBROADCASTSS(side, unit)
			VBROADCASTSS(side.Offset(4), total)
			VMULPS(unit, a[0], a[0])
			VMOVUPS(Mem{Base: m.c[r], Disp: 32 * h}, y)
			VFMADD231PS(scale, a[0], y)
			VFMADD231PS(total, bias, y)
			VMOVUPS(y, Mem{Base: m.c[r], Disp: 32 * h})
		}
	}
}

// next goes on to the next registers of outputs, and behind the last to the next group.
func (m *multiplier) next(across, groups GPVirtual) {
	size := GP64() // of a group's codes
	Comment("The codes of a group.")
	IMUL3Q(U32(uint32(m.bytes/(4*m.quads))), m.group, size)
	SUBQ(size, m.words)
	for _, x := range m.x {
		SUBQ(m.group, x)
	}
	for _, s := range append(m.onward, step{m.words, 32 * m.vecs, 0}) {
		ADDQ(U32(uint32(s.each)), s.at)
	}
	for _, c := range m.c {
		ADDQ(U32(uint32(32*m.vecs)), c)
	}
	DECQ(across)
	JNZ(LabelRef("outputs"))
	LEAQ(Mem{Base: m.words, Index: size, Scale: 1, Disp: -4 * m.outputs}, m.words)
	for _, c := range m.c {
		SUBQ(U32(uint32(4*m.outputs)), c)
	}
	for _, x := range m.x {
		LEAQ(Mem{Base: x, Index: m.group, Scale: 2, Disp: 8}, x)
		ADDQ(m.group, x)
	}
	for _, s := range m.onward {
		if rest := s.whole - s.each*m.outputs/(narrowLanes*m.vecs); rest > 0 {
			ADDQ(U32(uint32(rest)), s.at)
		}
	}
	DECQ(groups)
	JNZ(LabelRef("group"))
}
