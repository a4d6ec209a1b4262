package cpu

import (
	"math"

	"lector/engine/ops"
)

var _ ops.Picker = (*Backend)(nil)

// pickColumns is how many columns an item of work looks at.
const pickColumns = 1024

// picks is a Pick, and what it found by pieces of a row.
type picks struct {
	*Backend
	y      rows
	n      int // columns to choose from
	pieces int // of a row
	found  []pick
}

// pick is the largest of some columns, and where it is. Without one of them that may be chosen the column is -1.
type pick struct {
	value  float32
	column int
	finite bool
}

// Pick implements ops.Picker.
func (b *Backend) Pick(y ops.Tensor, n int) ops.Picks {
	p := b.pickOf(y, n)
	b.inPhases(p, p.phase())
	return p
}

func (b *Backend) pickOf(y ops.Tensor, n int) *picks {
	fit(n > 0 && n <= y.Cols, "Pick", y)
	pieces := (y.Cols + pickColumns - 1) / pickColumns
	return &picks{b, all(y), n, pieces, make([]pick, y.Rows*pieces)}
}

func (p *picks) phase() phase { return phase{len(p.found), grain(8 * pickColumns)} }

func (p *picks) do(s *scratch, _, from, to int) {
	for i := from; i < to; i++ {
		at := i % p.pieces * pickColumns
		row := p.y.at(i / p.pieces)
		p.found[i] = s.vector.pick(row[at:min(at+pickColumns, len(row))], p.n-at)
		if p.found[i].column >= 0 {
			p.found[i].column += at
		}
	}
}

func (p *picks) name(int) string { return "Pick" }

// pick finds the largest of the first n of x, and looks at all.
func (v vector) pick(x []float32, n int) pick {
	p := pick{column: -1, finite: finite(x)}
	if n = min(n, len(x)); n <= 0 || !p.finite {
		return p
	}
	p.value = v.largest(x[:n])
	for p.column = 0; x[p.column] != p.value; p.column++ {
	}
	return p
}

// finite says that all of x are finite: an exponent of ones alone, with its lowest bit added, carries into the sign.
func finite(x []float32) bool {
	const exponent, lowest, sign = 0x7f800000, 0x00800000, 0x80000000
	carried := uint32(0)
	for ; len(x) >= 4; x = x[4:] {
		p, q, r, s := math.Float32bits(x[0])&exponent, math.Float32bits(x[1])&exponent, math.Float32bits(x[2])&exponent, math.Float32bits(x[3])&exponent
		carried |= (p + lowest) | (q + lowest) | (r + lowest) | (s + lowest)
	}
	for _, f := range x {
		carried |= (math.Float32bits(f) & exponent) + lowest
	}
	return carried&sign == 0
}

// Row implements ops.Picks.
func (p *picks) Row(r int) (column int, finite bool) {
	best := pick{column: -1}
	for _, f := range p.found[r*p.pieces : (r+1)*p.pieces] {
		if !f.finite {
			return 0, false
		}
		if f.column >= 0 && (best.column < 0 || f.value > best.value) {
			best = f
		}
	}
	return best.column, true
}
