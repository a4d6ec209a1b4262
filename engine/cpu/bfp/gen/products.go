package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// sums are the sums of a group, and where what they are made of stands.
type sums struct {
	acc        [][][limbs]VecVirtual // [rows][registers of outputs]
	x          [limbs]GPVirtual      // where the limbs of row 0 begin
	ldx, far   GPVirtual             // bytes from one row to the next, and three times that
	group      GPVirtual             // inputs of a group
	c          GPVirtual             // the products, [rows, *]
	ldc, farC  GPVirtual             // bytes from one row to the next, and three times that
	shift      Mem                   // 256
	rows, vecs int
}

// newSums loads what is named ldx, group, c and ldc.
func newSums(rows, vecs int) *sums {
	s := &sums{rows: rows, vecs: vecs, group: load("group"), shift: NewDataAddr(NewStaticSymbol("limb"), 0), c: load("c")}
	s.x = [limbs]GPVirtual{GP64(), GP64(), GP64()}
	s.acc = make([][][limbs]VecVirtual, rows)
	for r := range s.acc {
		s.acc[r] = make([][limbs]VecVirtual, vecs)
		for h := range s.acc[r] {
			s.acc[r][h] = [limbs]VecVirtual{ZMM(), ZMM(), ZMM()}
		}
	}
	if rows > 1 {
		s.ldx, s.ldc = load("ldx"), load("ldc")
		SHLQ(Imm(2), s.ldc)
	}
	if rows > 3 {
		s.far, s.farC = GP64(), GP64()
		LEAQ(Mem{Base: s.ldx, Index: s.ldx, Scale: 2}, s.far)
		LEAQ(Mem{Base: s.ldc, Index: s.ldc, Scale: 2}, s.farC)
	}
	return s
}

// start loads what is named x, and sets the products to zero.
func (s *sums) start() {
	Load(Param("x"), s.x[0])
	LEAQ(Mem{Base: s.x[0], Index: s.group, Scale: 1}, s.x[1])
	LEAQ(Mem{Base: s.x[0], Index: s.group, Scale: 2}, s.x[2])
	none := ZMM()
	zero(none)
	for r := range s.rows {
		for h := range s.vecs {
			VMOVUPS(none, s.product(r, h))
		}
	}
}

// row is a place in row r of what begins at base.
func row(base, step, far GPVirtual, r, disp int) Mem {
	switch r {
	case 0:
		return Mem{Base: base, Disp: disp}
	case 3:
		return Mem{Base: base, Index: far, Scale: 1, Disp: disp}
	}
	return Mem{Base: base, Index: step, Scale: uint8(r), Disp: disp}
}

// limb is a limb of quad q of row r.
func (s *sums) limb(l, r, q int) Mem { return row(s.x[l], s.ldx, s.far, r, 4*q) }

func (s *sums) product(r, h int) Mem { return row(s.c, s.ldc, s.farC, r, 64*h) }

// begin sets the sums to zero.
func (s *sums) begin() {
	for r := range s.acc {
		for h := range s.acc[r] {
			for _, a := range s.acc[r][h] {
				zero(a)
			}
		}
	}
}

// advance goes on by some quads.
func (s *sums) advance(quads int) {
	for _, x := range s.x {
		ADDQ(Imm(uint64(4*quads)), x)
	}
}

// end adds the sums of the group behind the limbs, and goes on to the next.
func (s *sums) end(side func(h int) (scale, bias VecVirtual)) {
	unit, total := func(r int) Mem { return row(s.x[2], s.ldx, s.far, r, 0) }, func(r int) Mem { return row(s.x[2], s.ldx, s.far, r, 4) }
	for h := range s.vecs {
		scale, bias := side(h)
		for r := range s.rows {
			a := s.acc[r][h]
			for _, v := range a {
				VCVTDQ2PS(v, v)
			}
			VFMADD132PS_BCST(s.shift, a[1], a[0])
			VFMADD132PS_BCST(s.shift, a[2], a[0])
			VMULPS_BCST(unit(r), a[0], a[0])
			y := ZMM()
			VMOVUPS(s.product(r, h), y)
			VFMADD231PS(scale, a[0], y)
			VFMADD231PS_BCST(total(r), bias, y)
			VMOVUPS(y, s.product(r, h))
		}
	}
	for _, x := range s.x {
		LEAQ(Mem{Base: x, Index: s.group, Scale: 2, Disp: 8}, x)
	}
}

// product multiplies rows with a panel of 32 outputs.
func product(rows int) {
	const vecs, unrolled = 2, 8
	name := fmt.Sprintf("product512x%d", rows)
	kernel(name, "func(c *float32, ldc int, x *byte, ldx int, panel *byte, sides *float32, group, groups int)")
	Doc(fmt.Sprintf("%s sets c to the products of %d packed rows and 32 outputs, [%d, 32]. Their codes are panel [groups, group/4, 32, 4], their scales and biases", name, rows, rows),
		"sides [groups, 2, 32]. group is a multiple of 32. "+needs)
	s := newSums(rows, vecs)
	s.start()
	panel, sides, groups, left := load("panel"), load("sides"), load("groups"), GP64()
	Label("group")
	s.begin()
	MOVQ(s.group, left)
	Label("quads")
	for q := range unrolled {
		var w [vecs]VecVirtual
		for h := range w {
			w[h] = ZMM()
			VMOVDQU32(Mem{Base: panel, Disp: 64 * (vecs*q + h)}, w[h])
		}
		for r := range rows {
			for l := range limbs {
				x := ZMM()
				VPBROADCASTD(s.limb(l, r, q), x)
				for h := range w {
					VPDPBUSD(x, w[h], s.acc[r][h][l])
				}
			}
		}
	}
	s.advance(unrolled)
	ADDQ(U32(64*vecs*unrolled), panel)
	SUBQ(Imm(4*unrolled), left)
	JNZ(LabelRef("quads"))
	s.end(func(h int) (scale, bias VecVirtual) {
		scale, bias = ZMM(), ZMM()
		VMOVUPS(Mem{Base: sides, Disp: 64 * h}, scale)
		VMOVUPS(Mem{Base: sides, Disp: 64 * (vecs + h)}, bias)
		return scale, bias
	})
	ADDQ(U32(2*64*vecs), sides)
	DECQ(groups)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

const (
	across     = 64   // outputs of a tile
	codesAhead = 4096 // bytes that codes are brought near before they are read, as long as memory takes to answer
	sidesAhead = 512  // the same of scales, and of biases
)

// few multiplies rows with tiles of 64 outputs, or four with half of each.
func few(bits, rows int) {
	vecs := min(across/lanes, 8/rows)
	name := fmt.Sprintf("few512x%dx%d", bits, rows)
	kernel(name, "func(c *float32, ldc int, x *byte, ldx int, words, scales, biases *byte, group, groups, periods, tiles int)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s sets c to the products of %d packed rows and the first %d outputs of some tiles of 64, [%d, tiles, %d of 64]. words are their codes,", name, rows, lanes*vecs, rows, lanes*vecs),
		fmt.Sprintf("[tiles, *, 64], %d words for %d inputs, a group is `periods` times that; scales and biases are theirs in bf16, [tiles, groups, 64].", width, codes),
		"Meanwhile what comes after them in memory is brought near. "+needs)
	s, from := newSums(rows, vecs), newSpreader(bits)
	words, scales, biases, groups, left := load("words"), load("scales"), load("biases"), GP64(), GP64()
	Label("tile")
	s.start()
	Load(Param("groups"), groups)
	Label("group")
	s.begin()
	Load(Param("periods"), left)
	Label("period")
	for line := range width * across / lanes { // not into the second cache: the next token comes after all other weights
		PREFETCHNTA(Mem{Base: words, Disp: codesAhead + 64*line})
	}
	s.period(codes/4, func(h, q int) VecVirtual {
		return from.quad(q, func(n int) Mem { return Mem{Base: words, Disp: 4*across*n + 64*h} })
	})
	s.advance(codes / 4)
	ADDQ(U32(uint32(4*across*width)), words)
	DECQ(left)
	JNZ(LabelRef("period"))
	s.end(func(h int) (scale, bias VecVirtual) {
		return widened(Mem{Base: scales, Disp: 32 * h}), widened(Mem{Base: biases, Disp: 32 * h})
	})
	for _, side := range []GPVirtual{scales, biases} {
		for at := 0; at < 2*across; at += 64 {
			PREFETCHT0(Mem{Base: side, Disp: sidesAhead + at})
		}
		SUBQ(I32(-2*across), side)
	}
	DECQ(groups)
	JNZ(LabelRef("group"))
	ADDQ(U32(4*across), s.c)
	tiles, err := Param("tiles").Resolve()
	if err != nil {
		panic(err)
	}
	DECQ(tiles.Addr) // where it was handed over: no register is left for it
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

// period adds the products of some quads. One row's limbs stay in registers for all outputs; those of more have no room there.
func (s *sums) period(quads int, quad func(h, q int) VecVirtual) {
	if s.rows > 1 {
		for h := range s.vecs {
			for q := range quads {
				w := quad(h, q)
				for r := range s.rows {
					for l := range limbs {
						VPDPBUSD_BCST(s.limb(l, r, q), w, s.acc[r][h][l])
					}
				}
			}
		}
		return
	}
	for q := range quads {
		var x [limbs]VecVirtual
		for l := range x {
			x[l] = ZMM()
			VPBROADCASTD(s.limb(l, 0, q), x[l])
		}
		for h := range s.vecs {
			w := quad(h, q)
			for l := range x {
				VPDPBUSD(x[l], w, s.acc[0][h][l])
			}
		}
	}
}

// widened is 16 numbers in bf16.
func widened(from Mem) VecVirtual {
	v := ZMM()
	VPMOVZXWD(from, v)
	VPSLLD(Imm(16), v, v)
	return v
}

// spread unpacks the codes of 16 outputs.
func spread(bits int) {
	name := fmt.Sprintf("spread512x%d", bits)
	kernel(name, "func(panel *byte, words *float32, step, periods int)")
	codes, width := period(bits)
	Doc(fmt.Sprintf("%s brings codes of %d bits of 16 outputs into bytes: panel [*, 32, 4], of which the first 16. words are theirs, [*, step], %d words for %d inputs.", name, bits, width, codes), needs)
	panel, words, step, periods := load("panel"), load("words"), load("step"), load("periods")
	SHLQ(Imm(2), step)
	from := newSpreader(bits)
	Label("period")
	for q := range codes / 4 {
		v := from.quad(q, func(n int) Mem { return row(words, step, nil, n, 0) })
		VMOVDQU32(v, Mem{Base: panel, Disp: 128 * q})
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
