package cpu

import (
	"lector/engine/cpu/amx"
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// amxBytes is about how much of packed rows meets the weights of an item before the next rows: it stays in the second cache.
const amxBytes = 1 << 20

// registers is what one goroutine multiplies in, in the class cpu-amx.
type registers struct {
	set     amx.Set
	packed  amx.Packed
	packing packing // what packed is
	panel   amx.Panel
	temp    amx.Temp
	few     amx.Few
}

// runTiles computes the product in tile registers (package amx). How it is cut changes no bit.
func (p product) runTiles(c *chains) {
	r := c.amx
	p = p.inTiles(c)
	if p.x.n <= amx.FewRows && r.set.SuitsFew(p.w) && p.from%(fma.Lanes/2) == 0 {
		r.few.Pack(p.x.n, p.x.at, p.w)
		r.few.Outputs(p.w, p.from, p.to, func(row, o int, products []float32) {
			copy(p.y.at(row)[p.at+o-p.from:], products)
		})
		return
	}
	each := amxRows(p.w)
	for top := 0; top < p.x.n; top += each {
		p.blockTiles(r, top, min(each, p.x.n-top))
	}
}

// amxRows is how many rows of x meet the weights of an item before the next.
func amxRows(w *ops.Matrix) int {
	return max(1, min(blockedRows, amxBytes/amx.PackedBytes(w.In))/amx.Rows) * amx.Rows
}

// blockTiles computes n rows from `top` on.
func (p *product) blockTiles(r *registers, top, n int) {
	now := packing{p.call, p.x.first + top, n, amx.GroupOf(p.w), p.w.In}
	if p.call == 0 || r.packing != now { // items of one call often differ in their outputs alone
		r.set.Pack(&r.packed, n, func(i int) []float32 { return p.x.at(top + i) }, p.w)
		r.packing = now
	}
	for o := p.from; o < p.to; o += amx.Outputs {
		outputs := min(amx.Outputs, p.to-o)
		r.set.Unpack(&r.panel, p.w, o, outputs)
		r.set.Multiply(&r.packed, &r.panel, &r.temp, func(i int, products *[amx.Outputs]float32) {
			y := p.y.at(top + i)[p.at+o-p.from:]
			if outputs == amx.Outputs {
				*(*[amx.Outputs]float32)(y) = *products
			} else {
				copy(y, products[:outputs])
			}
		})
	}
}

// tiles says that the class multiplies with weights like w in tile registers.
func (c *chains) tiles(w *ops.Matrix) bool { return c.amx != nil && amx.Suits(w) }
