package bfp

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// Outputs is how many outputs a panel has.
const Outputs = fma.Lanes

// Panel is up to 32 outputs of a matrix, their codes in bytes. The zero value is ready for Unpack, which reuses its memory.
type Panel struct {
	codes  []byte    // [groups, group/4, 32, 4]
	sides  []float32 // [groups, 2, 32]
	bits   int       // of a code
	floats []float32
	temp   fma.Temp
	ragged [together * Outputs]float32 // products, where there are fewer outputs than the kernels write
}

// Unpack brings n <= 32 outputs of m, which Suits, into the panel, from output o on.
func (s Set) Unpack(w *Panel, m *ops.Matrix, o, n int) {
	w.codes, w.bits = fma.Grow(&w.codes, m.In*Outputs), m.Bits
	w.sides = fma.Grow(&w.sides, (m.In/m.Group+fma.Lanes/2)*2*Outputs)
	s.chains().Sides(w.sides, m, fma.Part{Row: o, N: n, K: m.In}, &w.temp)
	for from := 0; from < n; from += fma.Lanes / 2 {
		s.unpackHalf(w, m, fma.Part{Row: o + from, N: min(fma.Lanes/2, n-from), K: m.In}, from)
	}
}

// unpackHalf unpacks up to 16 outputs to the columns from one on.
func (s Set) unpackHalf(w *Panel, m *ops.Matrix, p fma.Part, column int) {
	to := w.codes[4*column:]
	if s != Plain {
		if words := s.chains().Words(m, p, &w.temp); words.Data != nil {
			s.spread(to, words, m)
			return
		}
	}
	each := fma.Block / m.Group * m.Group
	w.floats = fma.Grow(&w.floats, fma.PanelFloats)
	for k := 0; k < m.In; k += each {
		p.From, p.K = k, min(each, m.In-k)
		s.chains().Codes(w.floats, m, p, &w.temp)
		bytesPlain(to[k*Outputs:], w.floats, p, m)
	}
}

// together is how many rows meet a panel at a time.
const together = 4

// Multiply sets c [rows of x, n] to the products of all rows of x and n <= 32 outputs of w.
func (s Set) Multiply(c fma.Rows, x *Packed, w *Panel, n int) {
	_, _ = w.codes[x.groups*x.group*Outputs-1], w.sides[x.groups*2*Outputs-1]
	for r := 0; r < x.n; {
		rows := [...]int{0, 1, 2, 2, 4}[min(x.n-r, together)]
		to := fma.Rows{Data: c.Data[r*c.Step:], Step: c.Step}
		if n == Outputs {
			_ = to.Data[(rows-1)*to.Step+Outputs-1]
			s.product(to, rows, x, r, w)
		} else {
			s.product(fma.Rows{Data: w.ragged[:], Step: Outputs}, rows, x, r, w)
			for i := range rows {
				copy(to.Data[i*to.Step:][:n], w.ragged[i*Outputs:])
			}
		}
		r += rows
	}
}
