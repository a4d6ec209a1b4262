package bfp

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// FewRows is up to how many rows Few takes.
	FewRows = 4
	// FewOutputs is how many outputs a tile of few rows has at most.
	FewOutputs = fma.FewOutputs
)

// Tile is how many outputs a tile has that Few reads as one stream.
func (s Set) Tile() int {
	if s == AVX2 {
		return 2 * narrowLanes
	}
	return FewOutputs
}

const narrowLanes = 8 // outputs of a register of AVX2

// SuitsTiles says that Few knows weights of this kind, which Suits, in tiles of Tile outputs.
func (s Set) SuitsTiles(m *ops.Matrix) bool {
	return s != Plain && Suits(m) && (m.Bits == 4 || m.Bits == 6 || m.Bits == 8) && m.Side == ops.BF16
}

// SuitsFew says that Few knows these weights.
func (s Set) SuitsFew(m *ops.Matrix) bool { return m.Tiled == s.Tile() && s.SuitsTiles(m) }

// Few sets c[r, j] to the products of the first `rows` <= FewRows rows of x and the outputs of w, any number of whole tiles of its
// matrix, which SuitsFew. c has w.N columns.
func (s Set) Few(c fma.Rows, x *Packed, rows int, w fma.Outputs) {
	m := w.Matrix
	row, side := m.In*m.Bits/8, 2*m.In/m.Group
	_, _ = c.Data[(rows-1)*c.Step+w.N-1], x.data[rows*x.row()-1]
	w.Near(s.chains())
	each := m.Tiled
	if s == VNNI && rows <= 2 { // else what comes again is at hand still
		each = w.N
	}
	for o, next := w.Row, 0; o < w.Row+w.N; o = next {
		next = o + each
		tiles := tiles{m.Data[o*row : next*row], m.Scales[o*side : next*side], m.Biases[o*side : next*side], m.Bits, each / m.Tiled}
		for r := 0; r < rows; {
			n := [...]int{0, 1, 2, 2, 4}[rows-r]
			s.few(n, fma.Rows{Data: c.Data[r*c.Step+o-w.Row:], Step: c.Step}, x, r, &tiles)
			r += n
		}
	}
}

// tiles are n tiles, one after the other.
type tiles struct {
	codes, scales, biases []byte
	bits, n               int
}
