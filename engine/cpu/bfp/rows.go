package bfp

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// Packed are rows of x in limbs. The zero value is ready for Pack, which reuses its memory.
type Packed struct {
	data          []byte // [rows, groups, limbs*group + sideBytes]
	n             int    // rows
	group, groups int
}

// Rows is how many rows are packed.
func (p *Packed) Rows() int { return p.n }

// PackedBytes is the memory that a row of x takes when it is packed for m.
func PackedBytes(m *ops.Matrix) int { return m.In / m.Group * (limbs*m.Group + sideBytes) }

// row is the bytes of a row.
func (p *Packed) row() int { return p.groups * (limbs*p.group + sideBytes) }

// Like says what rows are packed for: the same row is the same for all matrices of whose Like it is.
type Like struct{ inputs, group, apart int }

// LikeOf is that of m.
func LikeOf(m *ops.Matrix) Like { return Like{m.In, m.Group, apart(m.Bits)} }

// Pack packs n rows of x, which `at` names, for products with weights like m.
func (s Set) Pack(p *Packed, n int, at func(r int) []float32, m *ops.Matrix) {
	p.n, p.group, p.groups = n, m.Group, m.In/m.Group
	size := p.row()
	p.data = fma.Grow(&p.data, n*size)
	order := orderOf(m.Bits)
	for r := range n {
		s.split(p.data[r*size:(r+1)*size], at(r)[:m.In], &order, m.Group)
	}
}
