package fma

import (
	"unsafe"

	"lector/engine/ops"
)

// Repacked is an affine matrix as the kernels of Few read it: for every 16 outputs the words of their codes
// [*, 16], and their scales and biases [groups, 2, 16].
type Repacked struct {
	words, sides Rows // a row is 16 outputs
	of           *ops.Matrix
}

// RepackFloats is the memory that Repack takes for m, in floats.
func RepackFloats(m *ops.Matrix) int {
	halves, words, groups := (m.Out+half-1)/half, m.In*m.Bits/32, m.In/m.Group
	return halves*half*(words+2*groups) + 16*half*3 // kernels write whole blocks
}

// Repack brings m, which SuitsFew, into memory of RepackFloats.
func (s Set) Repack(m *ops.Matrix, memory []float32) *Repacked {
	halves, words, groups := (m.Out+half-1)/half, m.In*m.Bits/32, m.In/m.Group
	split := halves*half*words + 16*half
	r := &Repacked{words: Rows{memory[:split], half * words}, sides: Rows{memory[split:], 2 * half * groups}, of: m}
	var t Temp
	f := fewRun{w: Outputs{Matrix: m, N: half}, t: &t, bytes: m.Group * m.Bits / 8, all: groups}
	for h := range halves { // what a block writes too much, the next overwrites
		f.w.Row, f.w.N = h*half, min(half, m.Out-h*half)
		f.words(s, r.words.from(h, 0), 0, groups)
		f.sides(s, r.sides.from(h, 0))
	}
	return r
}

// FewRepacked is Few with a repacked matrix. row is a multiple of 16.
func (s Set) FewRepacked(c, x Rows, rows int, r *Repacked, part Part) {
	m := r.of
	_, _ = x.Data[(rows-1)*x.Step+m.In-1], c.Data[(rows-1)*c.Step+(part.N+half-1)/half*half-1]
	s.fewHalves(fewCall{c: c, x: x, words: r.words.from(part.Row/half, 0), sides: r.sides.from(part.Row/half, 0), bits: m.Bits,
		groups: m.In / m.Group, periods: m.Group / Period(m.Bits), ahead: r.ahead(part.Row + part.N), first: true}, part.N, rows)
}

// ahead is where the words of the outputs from row on begin: as the kernels go through the words of 64 outputs, 256 bytes
// at a time, the next are brought near.
func (r *Repacked) ahead(row int) stored {
	next := r.words.Data[min(row/half*r.words.Step, len(r.words.Data)-1):]
	return stored{data: unsafe.Slice((*byte)(unsafe.Pointer(&next[0])), 4*len(next)), stride: 4 * FewOutputs}
}
