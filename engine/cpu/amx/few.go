package amx

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// FewRows is up to how many rows Few takes.
const FewRows = 4

const (
	fewOutputs = 64
	fewTiles   = fewOutputs / high
	fewGroup   = 64 // inputs
	fewTemp    = 2*4096/2 + 2*2*fewTiles*2*size
)

// SuitsFew says that Few knows weights of this kind, which most 4-bit models have: tiled, groups of 64, bf16 scales.
func (s Set) SuitsFew(m *ops.Matrix) bool {
	return s == Tiles && m.Format == ops.Affine && m.Tiled == high && m.Bits == 4 && m.Group == fewGroup && m.Side == ops.BF16 && m.Out%high == 0
}

// Few is what few rows are multiplied in. The zero value is ready.
type Few struct {
	packed Packed
	temp   []uint16
	call   fewCall
	to     [FewRows * fewOutputs]float32
}

// Pack splits n <= FewRows rows of x, for products with weights like m.
func (f *Few) Pack(n int, at func(r int) []float32, m *ops.Matrix) {
	rows := FewRows
	if n == 1 { // few1's
		rows = 1
	}
	Tiles.pack(&f.packed, n, at, m, rows)
}

// Outputs calls keep with the products of the packed rows and up to 64 outputs of m, which SuitsFew, at a time: those of
// row r from output o on. from is a multiple of 16.
func (f *Few) Outputs(m *ops.Matrix, from, to int, keep func(r, o int, products []float32)) {
	f.temp = fma.Grow(&f.temp, fewTemp)
	groups := m.In / fewGroup
	f.call.parts, f.call.sums, f.call.to, f.call.temp, f.call.groups = &f.packed.parts[0], &f.packed.sums[0], &f.to[0], &f.temp[0], groups
	row, side := high*m.In/2, high*groups*2 // bytes of a tile's codes, and of its scales
	for o := from; o < to; o += fewOutputs {
		n := min(fewOutputs, to-o)
		for h := range fewTiles {
			at := o/high + min(h, (n-1)/high) // a ragged end repeats a tile; those results are dropped
			f.call.words[h], f.call.scales[h], f.call.biases[h] = &m.Data[at*row:][:row][0], &m.Scales[at*side:][:side][0], &m.Biases[at*side:][:side][0]
		}
		if f.packed.n == 1 {
			few1(&f.call)
		} else {
			few4(&f.call)
		}
		for r := range f.packed.n {
			keep(r, o, f.to[r*fewOutputs:][:n])
		}
	}
}
