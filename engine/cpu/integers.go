package cpu

import (
	"lector/engine/cpu/bfp"
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// bfpBytes is about how much of packed rows meets the weights of an item before the next rows: it stays in the second cache.
const bfpBytes = 1 << 20

// integers is what one goroutine multiplies in, in the class cpu-bfp24.
type integers struct {
	set   bfp.Set
	packs []pack // by slot
	panel bfp.Panel
}

// pack is packed rows, and which.
type pack struct {
	bfp.Packed
	what packing
	like bfp.Like
}

// runIntegers computes the product in integers (package bfp). How it is cut changes no bit.
func (p product) runIntegers(c *chains) {
	p = p.inTiles(c)
	if p.x.n <= bfp.FewRows && c.bfp.set.SuitsFew(p.w) && p.from%c.bfp.set.Tile() == 0 {
		p.fewIntegers(c)
		return
	}
	each := max(1, bfpBytes/bfp.PackedBytes(p.w))
	for top := 0; top < p.x.n; top += each {
		p.blockIntegers(c.bfp, top, min(each, p.x.n-top))
	}
}

// fewIntegers multiplies few rows with tiles.
func (p *product) fewIntegers(c *chains) {
	x := p.packed(c.bfp, 0, p.x.n)
	o, across := p.from, c.bfp.set.Tile()
	if n := (p.to - o) / across * across; n > 0 {
		y := fma.Rows{Data: p.y.data[p.y.first*p.y.stride+p.at:], Step: p.y.stride}
		c.bfp.set.Few(y, x, p.x.n, p.outputs(c, p.w, o, n))
		o += n
	}
	tile := fma.Rows{Data: floats(&c.tile, bfp.FewRows*across), Step: across}
	for ; o < p.to; o += across {
		c.bfp.set.Few(tile, x, p.x.n, p.outputs(c, p.w, o, across))
		p.keep(tile, 0, o, min(across, p.to-o))
	}
}

// blockIntegers computes n rows from `top` on.
func (p *product) blockIntegers(b *integers, top, n int) {
	x := p.packed(b, top, n)
	for o := p.from; o < p.to; o += bfp.Outputs {
		outputs := min(bfp.Outputs, p.to-o)
		b.set.Unpack(&b.panel, p.w, o, outputs)
		y := fma.Rows{Data: p.y.data[(p.y.first+top)*p.y.stride+p.at+o-p.from:], Step: p.y.stride}
		b.set.Multiply(y, x, &b.panel, outputs)
	}
}

// packed is n rows of x from `top` on. Those that an earlier product of the same call packed in the same slot are there already.
func (p *product) packed(b *integers, top, n int) *bfp.Packed {
	for len(b.packs) <= p.slot {
		b.packs = append(b.packs, pack{})
	}
	k := &b.packs[p.slot]
	what, like := packing{call: p.call, first: p.x.first + top, n: n}, bfp.LikeOf(p.w)
	if p.call == 0 || k.what != what || k.like != like {
		b.set.Pack(&k.Packed, n, func(i int) []float32 { return p.x.at(top + i) }, p.w)
		k.what, k.like = what, like
	}
	return &k.Packed
}

// integer says that the class multiplies with weights like w in integers.
func (c *chains) integer(w *ops.Matrix) bool { return c.bfp != nil && bfp.Suits(w) }
