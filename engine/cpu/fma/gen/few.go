package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// few is rows x (halves registers of 16 outputs) chains with affine weights that are decoded in registers. With so few
// rows, writing them to a panel and reading them again takes longer than the chains. The sides of tiles in bf16 are widened
// in registers, too.
func few(bits, rows, halves int, tiles bool) {
	f := newFew(bits, rows, halves, tiles)
	codes, width := period(bits)
	groups, left := load("groups"), GP64()
	if tiles {
		for r := range f.acc {
			for _, a := range f.acc[r] {
				zero(wide, a)
			}
		}
	} else {
		begin(wide, f.acc)
	}
	Label("loop")
	TESTQ(groups, groups)
	JZ(LabelRef("done"))
	DECQ(groups)
	f.loadSides()
	Load(Param("periods"), left)
	Label("period")
	f.period(codes, width)
	DECQ(left)
	JNZ(LabelRef("period"))
	JMP(LabelRef("loop"))
	Label("done")
	c := newGrid(load("c"), load("ldc"), rows)
	for r := range f.acc {
		for h := range f.acc[r] {
			VMOVUPS(f.acc[r][h], c.at(r, 64*h))
		}
	}
	VZEROUPPER()
	RET()
}

// newFew begins a kernel and loads what it is called with.
func newFew(bits, rows, halves int, tiles bool) *fewKernel {
	name, does := fmt.Sprintf("few512x%dx%dx%d", bits, rows, halves), "adds the products of x [%d, *] and the weights of %d outputs to c [%d, %d]"
	sides, stride, layout := "sides *float32", ", stride int, first bool", "sides are their scales and biases [groups, 2, 16]."
	if tiles {
		name, does = fmt.Sprintf("fewTiles512x%dx%dx%d", bits, rows, halves), "sets c to the products of x [%d, *] and the weights of %d outputs, [%d, %d]"
		sides, stride, layout = "scales, biases *byte", "", "scales and biases are theirs in bf16, [groups, 16] each."
	}
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, words *float32, next int, "+sides+", nextSides, groups, periods int, ahead *byte"+stride+")")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s "+does+", inputs ascending.", name, rows, 16*halves, rows, 16*halves),
		fmt.Sprintf("words are the codes of 16 outputs, [*, 16], %d words for %d inputs; %s", width, codes, layout),
		"The next 16 outputs have theirs next and nextSides floats on. Meanwhile 256 bytes at ahead, and stride (of tiles 256) bytes on for", "every word, are brought near. It needs AVX-512F.")
	f := &fewKernel{x: newGrid(load("x"), load("ldx"), rows), words: newGrid(load("words"), load("next"), halves), ahead: load("ahead")}
	if tiles {
		f.sides, f.biases = newGrid(load("scales"), load("nextSides"), halves), load("biases")
	} else {
		f.sides, f.stride = newGrid(load("sides"), load("nextSides"), halves), load("stride")
	}
	f.decoder = newDecoder(bits)
	f.acc = make([][]VecVirtual, rows)
	for r := range f.acc {
		for range halves {
			f.acc[r] = append(f.acc[r], ZMM())
		}
	}
	return f
}

// fewUpper is few with weights in bf16, which are widened in registers.
func fewUpper(rows, halves int) {
	name := fmt.Sprintf("fewUpper512x%dx%d", rows, halves)
	kernel(name, "func(c *float32, ldc int, x *float32, ldx int, words *float32, next, inputs int, ahead *byte)")
	Doc(fmt.Sprintf("%s sets c to the products of x [%d, *] and the weights of %d outputs, [%d, %d], inputs ascending.", name, rows, 16*halves, rows, 16*halves),
		"words are the weights of 16 outputs in bf16, [*, 16]; the next 16 outputs have theirs next floats on. Meanwhile 128 bytes at ahead", "for every input are brought near. It needs AVX-512F.")
	x, words := newGrid(load("x"), load("ldx"), rows), newGrid(load("words"), load("next"), halves)
	inputs, ahead := load("inputs"), load("ahead")
	acc := make([][]VecVirtual, rows)
	for r := range acc {
		for range halves {
			a := ZMM()
			zero(wide, a)
			acc[r] = append(acc[r], a)
		}
	}
	Label("loop")
	TESTQ(inputs, inputs)
	JZ(LabelRef("done"))
	PREFETCHT0(Mem{Base: ahead})
	PREFETCHT0(Mem{Base: ahead, Disp: 64})
	SUBQ(I32(-128), ahead)
	for h := range halves {
		w := ZMM()
		widenTo(w, words.at(h, 0))
		for r := range acc {
			VFMADD231PS_BCST(x.at(r, 0), w, acc[r][h])
		}
	}
	words.advance(32)
	x.advance(4)
	DECQ(inputs)
	JMP(LabelRef("loop"))
	Label("done")
	c := newGrid(load("c"), load("ldc"), rows)
	for r := range acc {
		for h := range acc[r] {
			VMOVUPS(acc[r][h], c.at(r, 64*h))
		}
	}
	VZEROUPPER()
	RET()
}

// decoder decodes codes of some bits in registers.
type decoder struct {
	bits        int
	table, mask VecVirtual // one of them
}

func newDecoder(bits int) decoder {
	d := decoder{bits: bits, table: codeTable(wide, bits)}
	if d.table == nil {
		d.mask = ZMM()
		low := GP32()
		MOVL(U32(1<<bits-1), low)
		VPBROADCASTD(low, d.mask)
	}
	return d
}

type fewKernel struct {
	decoder
	x, words, sides grid
	biases          GPVirtual // of tiles, else nil: then sides are scales
	ahead, stride   GPVirtual // no stride: 256
	acc             [][]VecVirtual
	scale, bias     []VecVirtual
}

func (f *fewKernel) loadSides() {
	f.scale, f.bias = nil, nil
	for h := range f.acc[0] {
		scale, bias := ZMM(), ZMM()
		if f.biases != nil {
			biases := f.sides
			biases.base = f.biases
			widenTo(scale, f.sides.at(h, 0))
			widenTo(bias, biases.at(h, 0))
		} else {
			VMOVUPS(f.sides.at(h, 0), scale)
			VMOVUPS(f.sides.at(h, 64), bias)
		}
		f.scale, f.bias = append(f.scale, scale), append(f.bias, bias)
	}
	if f.biases != nil {
		f.sides.advance(32)
		ADDQ(Imm(32), f.biases)
		return
	}
	f.sides.advanceFar(128)
}

// widenTo loads 16 numbers in bf16.
func widenTo(v VecVirtual, from Mem) {
	VPMOVZXWD(from, v)
	VPSLLD(Imm(16), v, v)
}

// period multiplies the codes of one period.
func (f *fewKernel) period(codes, width int) {
	for range width {
		for line := range 4 {
			PREFETCHT0(Mem{Base: f.ahead, Disp: 64 * line})
		}
		if f.stride == nil {
			ADDQ(U32(256), f.ahead)
		} else {
			ADDQ(f.stride, f.ahead)
		}
	}
	for i := range codes {
		for h := range f.acc[0] {
			w := f.codeOf(i, func(n int) Mem { return f.words.at(h, 64*n) })
			VFMADD213PS(f.bias[h], f.scale[h], w)
			for r := range f.acc {
				VFMADD231PS_BCST(f.x.at(r, 4*i), w, f.acc[r][h])
			}
		}
	}
	f.words.advanceFar(64 * width)
	f.x.advanceFar(4 * codes)
}

// codeOf takes code i of a period of words, as a float32.
func (d decoder) codeOf(i int, word func(n int) Mem) VecVirtual {
	at, v := d.bits*i, ZMM()
	n, off := at/32, at%32
	if d.table != nil && off == 0 {
		VMOVDQU32(word(n), v)
	} else {
		VPSRLD(Imm(uint64(off)), word(n), v)
	}
	if off+d.bits > 32 {
		high := ZMM()
		VPSLLD(Imm(uint64(32-off)), word(n+1), high)
		VPORD(high, v, v)
	}
	if d.table != nil {
		VPERMPS(d.table, v, v)
		return v
	}
	VPANDD(d.mask, v, v)
	VCVTDQ2PS(v, v)
	return v
}

// advanceFar is advance by any number of bytes.
func (g grid) advanceFar(bytes int) {
	ADDQ(U32(uint32(bytes)), g.base)
	if g.far != nil {
		ADDQ(U32(uint32(bytes)), g.far)
	}
}
