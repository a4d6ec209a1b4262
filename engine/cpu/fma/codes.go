package fma

import "lector/engine/ops"

// SuitsCodes says that Codes, Words and Sides know weights of this kind.
func SuitsCodes(m *ops.Matrix) bool {
	return m.Format == ops.Affine && m.Group*m.Bits%32 == 0 && whole(m)
}

// Codes sets panel[i*32+j] to the code of output p.Row+j and input p.From+i, less the middle of its range, 2^(bits-1), as a
// float. m is one that SuitsCodes, and p begins and ends with a group. Columns from p.N on hold nothing that matters, and up
// to 16 rows behind the last are overwritten.
func (s Set) Codes(panel []float32, m *ops.Matrix, p Part, t *Temp) {
	_ = panel[:PanelFloats]
	for from := 0; from < p.N; from += half {
		h := p.half(from)
		if !s.wordwise(m, h) {
			codesPlain(panel[from:], m, h)
			continue
		}
		w := t.codesOf(s, m, h)
		for i := range w.groups * half {
			w.scales[i], w.biases[i] = 1, -Middle(m)
		}
		s.unpack(panel[from:], w)
	}
}

// half is up to 16 outputs of a part, from one on.
func (p Part) half(from int) Part { return Part{p.Row + from, min(half, p.N-from), p.From, p.K} }

// wordwise says that the kernels read a part of m, which SuitsCodes.
func (s Set) wordwise(m *ops.Matrix, p Part) bool {
	return (s == AVX512 || s == AVX2) && !(m.Tiled > 0 && p.Row%half != 0)
}

// Words are the codes of up to 16 outputs as their matrix stores them, 32 bits at a time: [words, 16]. None where there are no
// kernels for that.
func (s Set) Words(m *ops.Matrix, p Part, t *Temp) Rows {
	if !s.wordwise(m, p) {
		return Rows{}
	}
	return t.codesOf(s, m, p).words
}

// Sides sets sides [groups, 2, 32] to the scales and the biases of p's groups. Up to 16 rows behind the last are overwritten.
func (s Set) Sides(sides []float32, m *ops.Matrix, p Part, t *Temp) {
	_ = sides[:(p.K/m.Group+16)*2*Lanes]
	for from := 0; from < p.N; from += half {
		h := p.half(from)
		if !s.wordwise(m, h) {
			sidesPlain(sides[from:], m, h)
			continue
		}
		s.sides(Rows{sides[from:], 2 * Lanes}, m.Scales, m, h, t)
		s.sides(Rows{sides[Lanes+from:], 2 * Lanes}, m.Biases, m, h, t)
	}
}

// Middle is that of the range of m's codes.
func Middle(m *ops.Matrix) float32 { return float32(int(1) << (m.Bits - 1)) }

func codesPlain(panel []float32, m *ops.Matrix, p Part) {
	for j := range p.N {
		for i := range p.K {
			code, _ := affineAt(m, p.Row+j, p.From+i)
			panel[i*Lanes+j] = float32(code) - Middle(m)
		}
	}
}

func sidesPlain(sides []float32, m *ops.Matrix, p Part) {
	for j := range p.N {
		for g := range p.K / m.Group {
			_, at := affineAt(m, p.Row+j, p.From+g*m.Group)
			sides[2*g*Lanes+j], sides[(2*g+1)*Lanes+j] = side(m.Scales, m.Side, at), side(m.Biases, m.Side, at)
		}
	}
}
