package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// pairsThatFit is how many quads of codes of so many bits are added in 16 bits: a limb is at least -128.
func pairsThatFit(bits int) int { return 32767 / (2 * 128 * (1<<bits - 1)) }

// planes is in how many halves codes of so many bits are multiplied, and of how many bits each is.
func planes(bits int) (n, each int) {
	if bits == 8 {
		return 2, 4
	}
	return 1, bits
}

// narrowAhead is codesAhead of these kernels: a core has few lines on their way at a time.
const narrowAhead = 2048

// few multiplies 1 or 2 rows with a tile of 16 outputs: what is read in memory is one stream.
func (n *narrow) few(bits, rows int) {
	const across = 2 * narrowLanes
	name := fmt.Sprintf("few256x%dx%d", bits, rows)
	kernel(name, "func(c *float32, ldc int, x *byte, ldx int, words, scales, biases *byte, group, groups int)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s sets c to the products of %d packed rows and a tile of %d outputs, [%d, %d]. words are their codes, [*, %d], %d words for %d inputs;", name, rows, across, rows, across, across, width, codes),
		fmt.Sprintf("scales and biases are theirs in bf16, [groups, %d]. Meanwhile what comes after them in memory is brought near. %s", across, needsAVX2))
	halves, each := planes(bits)
	periods := max(1, 32/codes)
	m := &multiplier{narrow: n, rows: rows, vecs: 2 / halves, planes: halves, outputs: across,
		quads: periods * codes / 4, most: pairsThatFit(each), bytes: 4 * across * width * periods}
	if bits == 6 {
		m.vecs = 2 / rows
	}
	m.load("words")
	scales, biases, groups := load("scales"), load("biases"), load("groups")
	m.onward = []step{{scales, 2 * narrowLanes * m.vecs, 2 * across}, {biases, 2 * narrowLanes * m.vecs, 2 * across}}
	m.quad = func(h, q, plane int) VecVirtual {
		word := func(k int) Mem {
			return Mem{Base: m.words, Disp: 4*across*(4*q/codes*width+k) + 32*h}
		}
		if halves > 1 {
			return masked(shifted(word(0), 4*plane), n.nibbles)
		}
		return n.quad(bits, q%(codes/4), word)
	}
	m.begun = func() {
		for line := range width * periods {
			PREFETCHNTA(Mem{Base: m.words, Disp: narrowAhead + 4*across*line})
		}
		PREFETCHT0(Mem{Base: scales, Disp: sidesAhead})
		PREFETCHT0(Mem{Base: biases, Disp: sidesAhead})
	}
	m.sides = func(h int) (scale, bias VecVirtual) {
		wide := func(base GPVirtual) VecVirtual {
			v := YMM()
			VPMOVZXWD(Mem{Base: base, Disp: 2 * narrowLanes * h}, v)
			VPSLLD(Imm(16), v, v)
			return v
		}
		return wide(scales), wide(biases)
	}
	m.run(groups)
}

// product multiplies 1 or 2 rows with a panel of 32 outputs, whose codes have at most so many bits.
func (n *narrow) product(bits, rows int) {
	const outputs, quads = 32, 8
	name := fmt.Sprintf("product256x%dx%d", bits, rows)
	kernel(name, "func(c *float32, ldc int, x *byte, ldx int, panel *byte, sides *float32, group, groups int)")
	Doc(fmt.Sprintf("%s sets c to the products of %d packed rows and %d outputs, [%d, %d]. Their codes, of at most %d bits, are panel [groups, group/4, %d, 4],", name, rows, outputs, rows, outputs, bits, outputs),
		fmt.Sprintf("their scales and biases sides [groups, 2, %d]. group is a multiple of 32. %s", outputs, needsAVX2))
	halves, each := planes(bits)
	m := &multiplier{narrow: n, rows: rows, vecs: 2 / halves, planes: halves, outputs: outputs,
		quads: quads, most: min(quads, pairsThatFit(each)), bytes: 4 * outputs * quads}
	m.load("panel")
	sides, groups := load("sides"), load("groups")
	m.onward = []step{{sides, 4 * narrowLanes * m.vecs, 8 * outputs}}
	m.quad = func(h, q, plane int) VecVirtual {
		code := Mem{Base: m.words, Disp: 4*outputs*q + 32*h}
		if halves > 1 {
			return masked(shifted(code, 4*plane), n.nibbles)
		}
		return shifted(code, 0)
	}
	m.sides = func(h int) (scale, bias VecVirtual) {
		scale, bias = YMM(), YMM()
		VMOVUPS(Mem{Base: sides, Disp: 32 * h}, scale)
		VMOVUPS(Mem{Base: sides, Disp: 4*outputs + 32*h}, bias)
		return scale, bias
	}
	m.run(groups)
}

// spread unpacks the codes of 16 outputs.
func (n *narrow) spread(bits int) {
	name := fmt.Sprintf("spread256x%d", bits)
	kernel(name, "func(panel *byte, words *float32, step, periods int)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s brings codes of %d bits of 16 outputs into bytes: panel [*, 32, 4], of which the first 16. words are theirs, [*, step], %d words for %d inputs.", name, bits, width, codes), needsAVX2)
	panel, words, step, periods := load("panel"), load("words"), load("step"), load("periods")
	SHLQ(Imm(2), step)
	Label("period")
	for q := range codes / 4 {
		for h := range 2 {
			v := n.quad(bits, q, func(k int) Mem { return row(words, step, nil, k, 32*h) })
			VMOVDQU(v, Mem{Base: panel, Disp: 128*q + 32*h})
		}
	}
	ADDQ(U32(uint32(32*codes)), panel)
	for range width {
		ADDQ(step, words)
	}
	DECQ(periods)
	JNZ(LabelRef("period"))
	VZEROUPPER()
	RET()
}
