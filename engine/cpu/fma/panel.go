package fma

import (
	"encoding/binary"
	"math"

	"lector/engine/ops"
)

// half is how many outputs the kernels decode at a time.
const half = Lanes / 2

// Block is the most inputs that Unpack takes at a time.
const Block = 1024

// PanelFloats is the room that a panel of a block takes: kernels write whole registers, 16 inputs at a time.
const PanelFloats = (Block + 16) * Lanes

// Temp is what Unpack works in. The zero value is ready; one goroutine uses it at a time.
type Temp struct {
	rows           []float32 // decoded rows [half, Block]
	panels         []float32 // of 64 outputs
	raw            []byte    // a ragged end's rows, as stored
	words          []float32 // codes, transposed [words, half]; bits, not numbers
	scales, biases []float32 // [groups, half]
}

// Part is a part of a matrix: n outputs from `Row` on, k inputs from `From` on. An affine part that begins and ends
// with a group is decoded by kernels.
type Part struct {
	Row, N  int // N is at most Lanes
	From, K int // K is at most Block
}

// Columns is how many columns of the panel a part fills: 16 or 32.
func (p Part) Columns() int {
	if p.N <= half {
		return half
	}
	return Lanes
}

// Inputs is how many inputs of m a part takes best: whole groups of affine weights, and at most Block or `most`.
func Inputs(m *ops.Matrix, most int) int {
	most = min(most, Block)
	if m.Format == ops.Affine && m.Group <= most {
		return most / m.Group * m.Group
	}
	return most
}

// Unpack sets panel[i*32+j] to the weight of output p.Row+j and input p.From+i. Columns from p.N up to p.Columns hold
// nothing that matters, and a few rows behind the last are overwritten.
func (s Set) Unpack(panel []float32, m *ops.Matrix, p Part, t *Temp) {
	_ = panel[:(p.K+16)*Lanes]
	for from := 0; from < p.N; from += half {
		h := Part{p.Row + from, min(half, p.N-from), p.From, p.K}
		if s == Plain {
			unpackPlain(panel[from:], m, h)
			continue
		}
		s.unpackHalf(panel[from:], m, h, t)
	}
}

// unpackHalf unpacks up to 16 outputs.
func (s Set) unpackHalf(panel []float32, m *ops.Matrix, p Part, t *Temp) {
	to := Rows{panel, Lanes}
	switch {
	case m.Format == ops.F32:
		s.transpose32(to, t.source(stored{m.Data, 4 * m.In, p.K}, 4*p.From, 4, p))
	case m.Format == ops.BF16:
		s.transpose16(to, t.source(stored{m.Data, 2 * m.In, p.K}, 2*p.From, 2, p))
	case m.Format == ops.Affine && m.Group*m.Bits%32 == 0 && p.From%m.Group == 0 && p.K%m.Group == 0 && whole(m) && !(m.Tiled > 0 && p.Row%half != 0):
		s.unpackWords(panel, m, p, t)
	default:
		rows := Grow(&t.rows, half*Block)
		for j := range p.N {
			decode(rows[j*Block:j*Block+p.K], m, p.Row+j, p.From)
		}
		for i := range p.K {
			for j := range p.N {
				panel[i*Lanes+j] = rows[j*Block+i]
			}
		}
	}
}

// whole says that a group is whole periods of the kernels' codes.
func whole(m *ops.Matrix) bool { return m.Group%Period(m.Bits) == 0 }

// Period is how many codes of so many bits fill whole words of 32 bits.
func Period(bits int) int {
	if 32%bits == 0 {
		return 32 / bits
	}
	return 96 / bits
}

// stored are rows of elements as a matrix stores them.
type stored struct {
	data   []byte // from the first row on
	stride int    // bytes from one row to the next
	n      int    // elements of a row
}

// past is what is left of it some bytes on, or the last of it.
func (s stored) past(bytes int) stored {
	s.data = s.data[min(bytes, len(s.data)-1):]
	return s
}

// source narrows all to the rows of p and, in each, to the bytes from `from` on. A ragged end's rows are copied, so that
// 16 can be read.
func (t *Temp) source(all stored, from, size int, p Part) stored {
	first, n := p.Row*all.stride+from, size*all.n
	if p.N == half {
		return stored{all.data[first : first+(half-1)*all.stride+n], all.stride, all.n}
	}
	raw := Grow(&t.raw, half*n)
	for j := range p.N {
		copy(raw[j*n:(j+1)*n], all.data[first+j*all.stride:])
	}
	return stored{raw, n, all.n}
}

// codes are affine weights of 16 outputs on their way into a panel.
type codes struct {
	words          Rows      // [*, 16]; bits, not numbers
	scales, biases []float32 // [groups, 16]
	bits           int
	groups         int
	periods        int // of a group
}

func (s Set) unpackWords(panel []float32, m *ops.Matrix, p Part, t *Temp) {
	w := t.codesOf(s, m, p)
	s.sides(Rows{w.scales, half}, m.Scales, m, p, t)
	s.sides(Rows{w.biases, half}, m.Biases, m, p, t)
	s.unpack(panel, w)
}

// codesOf are the codes of a part that begins and ends with a group, transposed, and room for scales and biases.
func (t *Temp) codesOf(s Set, m *ops.Matrix, p Part) codes {
	bytes, groups := m.Group*m.Bits/8, p.K/m.Group
	n := groups * bytes / 4
	w := codes{bits: m.Bits, groups: groups, periods: m.Group / Period(m.Bits),
		scales: Grow(&t.scales, (groups+16)*half), biases: Grow(&t.biases, (groups+16)*half)}
	if m.Tiled > 0 {
		w.words = tiledWords(m, p.Row, p.From)
	} else {
		w.words = Rows{Grow(&t.words, (n+16)*half), half}
		s.transpose32(w.words, t.source(stored{m.Data, m.In / m.Group * bytes, n}, p.From/m.Group*bytes, 4, p))
	}
	return w
}

// sides sets dst [groups, 16] to the scales or biases of a part.
func (s Set) sides(dst Rows, data []byte, m *ops.Matrix, p Part, t *Temp) {
	if m.Tiled > 0 {
		s.tiledSides(dst, data, m, p)
		return
	}
	groups, all, first := p.K/m.Group, m.In/m.Group, p.From/m.Group
	switch m.Side {
	case ops.F32:
		s.transpose32(dst, t.source(stored{data, 4 * all, groups}, 4*first, 4, p))
	case ops.BF16:
		s.transpose16(dst, t.source(stored{data, 2 * all, groups}, 2*first, 2, p))
	default:
		for j := range p.N {
			for g := range groups {
				dst.Data[g*dst.Step+j] = side(data, m.Side, (p.Row+j)*all+first+g)
			}
		}
	}
}

// unpackPlain decodes weight by weight.
func unpackPlain(panel []float32, m *ops.Matrix, p Part) {
	var row [Block]float32
	for j := range p.N {
		decode(row[:p.K], m, p.Row+j, p.From)
		for i, v := range row[:p.K] {
			panel[i*Lanes+j] = v
		}
	}
}

// decode sets dst to the weights of an output from input `from` on.
func decode(dst []float32, m *ops.Matrix, row, from int) {
	at := row*m.In + from
	for i := range dst {
		switch m.Format {
		case ops.F32:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(m.Data[4*(at+i):]))
		case ops.BF16, ops.F16:
			at := at + i
			if m.Tiled > 0 {
				at = upperAt(m, row, from+i)
			}
			dst[i] = side(m.Data, m.Format, at)
		case ops.Affine:
			code, g := affineAt(m, row, from+i)
			dst[i] = FMA(side(m.Scales, m.Side, g), float32(code), side(m.Biases, m.Side, g))
		}
	}
}

// affineAt is the code of an input, and where the scale and the bias of its group are.
func affineAt(m *ops.Matrix, row, i int) (code int32, group int) {
	groups, g := m.In/m.Group, i/m.Group
	if a := m.Tiled; a > 0 {
		return tiledCode(m, row, i), (row/a*groups+g)*a + row%a
	}
	return codeAt(m.Data[row*m.In*m.Bits/8:], i*m.Bits, m.Bits), row*groups + g
}

// Decode sets dst [In] to the weights of one output.
func Decode(dst []float32, m *ops.Matrix, row int) { decode(dst[:m.In], m, row, 0) }

// codeAt reads a code from a little-endian stream of bits.
func codeAt(data []byte, bit, bits int) int32 {
	v := uint(data[bit/8])
	if bit%8+bits > 8 {
		v |= uint(data[bit/8+1]) << 8
	}
	return int32(v >> (bit % 8) & (1<<bits - 1))
}

// side reads scale or bias i.
func side(data []byte, f ops.Format, i int) float32 {
	switch f {
	case ops.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	case ops.F16:
		return Widen(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
}

// Widen widens an IEEE half; every half is a float32.
func Widen(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exp {
	case 0: // zero and denormals: frac * 2^-24, exact
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Grow resizes *p to n elements of unknown content.
func Grow[T any](p *[]T, n int) []T {
	if cap(*p) < n {
		*p = make([]T, n)
	}
	return (*p)[:n]
}

// columns32 is transpose32 in Go.
func columns32(dst Rows, src stored) {
	for j := range half {
		row := src.data[j*src.stride : j*src.stride+4*src.n]
		for i := range src.n {
			dst.Data[i*dst.Step+j] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
		}
	}
}

// columns16 is transpose16 in Go.
func columns16(dst Rows, src stored) {
	for j := range half {
		row := src.data[j*src.stride : j*src.stride+2*src.n]
		for i := range src.n {
			dst.Data[i*dst.Step+j] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16)
		}
	}
}

// Transpose sets panel[i*32+j] to float i of row j for n <= 32 rows and i < k. Columns from n up to a multiple of 16
// hold nothing that matters, and up to 16 rows of the panel behind k are overwritten.
func (s Set) Transpose(panel []float32, rows Rows, n, k int) {
	for from := 0; from < n; from += half {
		have := min(half, n-from)
		if s.transposeRows(Rows{panel[from:], Lanes}, rows.from(from, 0), have, k) {
			continue
		}
		for j := range have {
			for i, v := range rows.Data[(from+j)*rows.Step:][:k] {
				panel[i*Lanes+from+j] = v
			}
		}
	}
}
