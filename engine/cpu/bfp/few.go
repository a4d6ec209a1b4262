package bfp

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// FewRows is up to how many rows Few takes.
	FewRows = 4
	// FewOutputs is how many outputs a tile of few rows has.
	FewOutputs = fma.FewOutputs
)

// SuitsFew says that Few knows weights of this kind, which Suits: in tiles of 64 outputs.
func (s Set) SuitsFew(m *ops.Matrix) bool {
	return s != Plain && m.Tiled == FewOutputs && (m.Bits == 4 || m.Bits == 6 || m.Bits == 8) && m.Side == ops.BF16
}

// Few sets c[r, j] to the products of the first `rows` <= FewRows rows of x and the outputs of w, any number of whole tiles of its
// matrix, which SuitsFew. c has w.N columns.
func (s Set) Few(c fma.Rows, x *Packed, rows int, w fma.Outputs) {
	m := w.Matrix
	row, side := m.In*m.Bits/8, 2*m.In/m.Group
	_, _ = c.Data[(rows-1)*c.Step+w.N-1], x.data[rows*x.row()-1]
	w.Near(s.chains())
	for o := w.Row; o < w.Row+w.N; o += FewOutputs {
		codes, scales, biases := m.Data[o*row:(o+FewOutputs)*row], m.Scales[o*side:(o+FewOutputs)*side], m.Biases[o*side:(o+FewOutputs)*side]
		for r := 0; r < rows; {
			n := [...]int{0, 1, 2, 2, 4}[rows-r]
			s.few(n, fma.Rows{Data: c.Data[r*c.Step+o-w.Row:], Step: c.Step}, x, r, tile{codes, scales, biases, m.Bits})
			r += n
		}
	}
}

// tile is 64 outputs.
type tile struct {
	codes, scales, biases []byte
	bits                  int
}
