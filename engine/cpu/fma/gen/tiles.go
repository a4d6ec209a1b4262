package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	across     = 4    // registers of outputs that a tile has side by side
	tilesAhead = 4096 // bytes that codes are brought near before they are read, as long as memory takes to answer
	sidesAhead = 512  // the same of scales, and of biases
)

// fewTiles is few with tiles of 64 outputs, one after another: a stream of codes, one of scales and one of biases.
func fewTiles(bits, rows int) {
	name := fmt.Sprintf("tiles512x%dx%d", bits, rows)
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, words, scales, biases *byte, groups, periods, tiles int)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s sets c to the products of x [%d, *] and the weights of tiles of 64 outputs, [%d, 64 tiles], inputs ascending.", name, rows, rows),
		fmt.Sprintf("words are their codes, [*, 64], %d words for %d inputs; scales and biases are theirs in bf16, [groups, 64].", width, codes),
		"Meanwhile what comes after them in memory is brought near. It needs AVX-512F.")
	f := &tilesKernel{codes: codes, width: width, x: newGrid(load("x"), load("ldx"), rows), c: newGrid(load("c"), load("ldc"), rows),
		words: load("words"), scales: load("scales"), biases: load("biases"), decoder: newDecoder(bits)}
	f.acc = make([][]VecVirtual, rows)
	for r := range f.acc {
		for range across {
			f.acc[r] = append(f.acc[r], ZMM())
		}
	}
	tiles := load("tiles")
	Label("tile")
	TESTQ(tiles, tiles)
	JZ(LabelRef("done"))
	DECQ(tiles)
	Load(Param("x"), f.x.base)
	f.tile()
	JMP(LabelRef("tile"))
	Label("done")
	VZEROUPPER()
	RET()
}

type tilesKernel struct {
	decoder
	codes, width          int // codes fill width words
	x, c                  grid
	words, scales, biases GPVirtual
	acc                   [][]VecVirtual
	scale, bias           [across]VecVirtual
}

// tile computes 64 outputs.
func (f *tilesKernel) tile() {
	for r := range f.acc {
		for _, a := range f.acc[r] {
			zero(wide, a)
		}
	}
	groups, left := load("groups"), GP64()
	Label("group")
	f.sides()
	Load(Param("periods"), left)
	Label("period")
	f.period()
	DECQ(left)
	JNZ(LabelRef("period"))
	DECQ(groups)
	JNZ(LabelRef("group"))
	for r := range f.acc {
		for h, a := range f.acc[r] {
			VMOVUPS(a, f.c.at(r, 64*h))
		}
	}
	ADDQ(U32(64*across), f.c.base)
}

// sides loads the scales and biases of a group.
func (f *tilesKernel) sides() {
	for h := range across {
		f.scale[h], f.bias[h] = ZMM(), ZMM()
		widenTo(f.scale[h], Mem{Base: f.scales, Disp: 32 * h})
		widenTo(f.bias[h], Mem{Base: f.biases, Disp: 32 * h})
	}
	for _, from := range []GPVirtual{f.scales, f.biases} {
		for at := 0; at < 32*across; at += 64 {
			PREFETCHT0(Mem{Base: from, Disp: sidesAhead + at})
		}
		SUBQ(I32(-32*across), from)
	}
}

// period multiplies the codes of one period.
func (f *tilesKernel) period() {
	for line := range f.width * across {
		PREFETCHT0(Mem{Base: f.words, Disp: tilesAhead + 64*line})
	}
	for i := range f.codes {
		for h := range across {
			w := f.codeOf(i, func(n int) Mem { return Mem{Base: f.words, Disp: 64 * (across*n + h)} })
			VFMADD213PS(f.bias[h], f.scale[h], w)
			for r := range f.acc {
				VFMADD231PS_BCST(f.x.at(r, 4*i), w, f.acc[r][h])
			}
		}
	}
	ADDQ(U32(uint32(64*across*f.width)), f.words)
	f.x.advanceFar(4 * f.codes)
}
