package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// fewTiles256 is fewTiles in 16 registers, which have no room for the chains and sides of 64 outputs: group after group, it goes
// through a tile in parts of some outputs, whose chains wait in c meanwhile.
func fewTiles256(bits, rows int) {
	name := fmt.Sprintf("tiles256x%dx%d", bits, rows)
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, words, scales, biases *byte, groups, periods, tiles int)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s sets c to the products of x [%d, *] and the weights of tiles of 64 outputs, [%d, 64 tiles], inputs ascending.", name, rows, rows),
		fmt.Sprintf("words are their codes, [*, 64], %d words for %d inputs; scales and biases are theirs in bf16, [groups, 64].", width, codes),
		"Meanwhile what comes after them in memory is brought near. It needs AVX2 and FMA.")
	f := &parts256{bits: bits, vecs: 4, codes: codes, width: width, x: newGrid(load("x"), load("ldx"), rows), c: newGrid(load("c"), load("ldc"), rows),
		words: load("words"), scales: load("scales"), biases: load("biases"), mask: YMM(), rows: rows}
	if rows == 4 {
		f.vecs = 2
	}
	low, m := GP32(), XMM()
	MOVL(U32(1<<bits-1), low)
	MOVD(low, m)
	VPBROADCASTD(m, f.mask)
	tiles := load("tiles")
	Label("tile")
	TESTQ(tiles, tiles)
	JZ(LabelRef("done"))
	DECQ(tiles)
	f.tile()
	JMP(LabelRef("tile"))
	Label("done")
	VZEROUPPER()
	RET()
}

type parts256 struct {
	bits, rows, vecs      int // a part is vecs registers of outputs
	codes, width          int // codes fill width words
	x, c                  grid
	words, scales, biases GPVirtual
	mask                  VecVirtual
	acc                   [][]VecVirtual
	scale                 []VecVirtual
	bias                  []Op // in registers, or in memory
}

const tileBytes = 64 * across // of a row of a tile's chains, and of the words that its outputs have side by side

// tile computes 64 outputs.
func (f *parts256) tile() {
	none := YMM()
	zero(narrow, none)
	for r := range f.rows {
		for at := 0; at < tileBytes; at += 32 {
			VMOVUPS(none, f.c.at(r, at))
		}
	}
	groups, x, words := load("groups"), load("x"), GP64()
	Label("group")
	MOVQ(f.words, words)
	var spilled Mem
	if f.rows == 2 {
		spilled = AllocLocal(32 * f.vecs)
	}
	for from := 0; from < tileBytes; from += 32 * f.vecs {
		MOVQ(x, f.x.base)
		MOVQ(words, f.words)
		f.part(from, spilled)
	}
	MOVQ(f.x.base, x)
	for _, side := range []GPVirtual{f.scales, f.biases} {
		for at := 0; at < tileBytes/2; at += 64 {
			PREFETCHT0(Mem{Base: side, Disp: sidesAhead + at})
		}
		SUBQ(I32(-tileBytes/2), side)
	}
	DECQ(groups)
	JNZ(LabelRef("group"))
	ADDQ(U32(tileBytes), f.c.base)
}

// part goes on with the chains that begin `from` bytes into a row, for one group.
func (f *parts256) part(from int, spilled Mem) {
	f.acc, f.scale, f.bias = make([][]VecVirtual, f.rows), nil, nil
	for v := range f.vecs {
		scale, bias := YMM(), YMM()
		widenTo(scale, Mem{Base: f.scales, Disp: from/2 + 16*v})
		widenTo(bias, Mem{Base: f.biases, Disp: from/2 + 16*v})
		f.scale = append(f.scale, scale)
		if f.rows != 2 {
			f.bias = append(f.bias, bias)
			continue
		}
		at := spilled.Offset(32 * v)
		VMOVUPS(bias, at)
		f.bias = append(f.bias, at)
	}
	for r := range f.acc {
		for v := range f.vecs {
			a := YMM()
			VMOVUPS(f.c.at(r, from+32*v), a)
			f.acc[r] = append(f.acc[r], a)
		}
	}
	left, label := load("periods"), fmt.Sprintf("part%d", from)
	Label(label)
	f.period(from)
	DECQ(left)
	JNZ(LabelRef(label))
	for r := range f.acc {
		for v, a := range f.acc[r] {
			VMOVUPS(a, f.c.at(r, from+32*v))
		}
	}
}

// period multiplies the codes of one period.
func (f *parts256) period(from int) {
	for d := range f.width {
		for at := from; at < from+32*f.vecs; at += 64 {
			PREFETCHT0(Mem{Base: f.words, Disp: tilesAhead + tileBytes*d + at})
		}
	}
	for i := range f.codes {
		var x VecVirtual
		for v := range f.vecs {
			w := f.codeOf(i, func(n int) Mem { return Mem{Base: f.words, Disp: tileBytes*n + from + 32*v} })
			VFMADD213PS(f.bias[v], f.scale[v], w)
			for r := range f.acc {
				if f.rows > 1 || v == 0 {
					x = YMM()
					VBROADCASTSS(f.x.at(r, 4*i), x)
				}
				VFMADD231PS(x, w, f.acc[r][v])
			}
		}
	}
	ADDQ(U32(uint32(tileBytes*f.width)), f.words)
	f.x.advance(4 * f.codes)
}

// codeOf takes code i of a period of words, as a float32.
func (f *parts256) codeOf(i int, word func(n int) Mem) VecVirtual {
	at, v := f.bits*i, YMM()
	n, off := at/32, at%32
	if off == 0 {
		VPAND(word(n), f.mask, v)
		VCVTDQ2PS(v, v)
		return v
	}
	VMOVDQU(word(n), v)
	VPSRLD(Imm(uint64(off)), v, v)
	if off+f.bits > 32 {
		high := YMM()
		VMOVDQU(word(n+1), high)
		VPSLLD(Imm(uint64(32-off)), high, high)
		VPOR(high, v, v)
	}
	if off+f.bits != 32 {
		VPAND(f.mask, v, v)
	}
	VCVTDQ2PS(v, v)
	return v
}
