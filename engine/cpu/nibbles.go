package cpu

import (
	"encoding/binary"
	"math"

	"lector/engine/ops"
)

// fewRows is up to how many rows of x weights of 4 bits are decoded in registers, anew for each block of rows.
const fewRows = 4

// nibbleLanes is how many rows of weights meet side by side there.
const nibbleLanes = 16

// suitsNibbles says whether the product is small enough, and its weights of a kind, for runNibbles.
func (p *product) suitsNibbles(v vector) bool {
	return v.nibbles() && p.w.Format == ops.Affine && p.w.Bits == 4 && p.x.n <= fewRows
}

// nibbleRows are 16 rows of weights of 4 bits as they are stored.
type nibbleRows struct {
	codes          []byte
	at             [nibbleLanes]int32 // where a row's codes begin
	scales, biases []float32          // [groups, nibbleLanes]
	group          int
}

// runNibbles computes 16 outputs at a time without writing decoded weights to memory: with few rows of x, writing and
// transposing them takes longer than the sums. The sums are those of runPanels, in the same order.
func (p product) runNibbles(s *scratch) {
	groups, width := p.w.In/p.w.Group, p.w.Group/2
	w := nibbleRows{group: p.w.Group, scales: floats(&s.panel, nibbleLanes*groups), biases: floats(&s.columns, nibbleLanes*groups)}
	for o := p.from; o < p.to; o += nibbleLanes {
		n := min(nibbleLanes, p.to-o)
		w.codes = p.w.Data[o*groups*width:]
		for j := range w.at {
			row := min(j, n-1) // a ragged end repeats a row; those results are dropped
			w.at[j] = int32(row * groups * width)
			sides(w.scales[j:], p.w.Scales, p.w.Side, (o+row)*groups, groups)
			sides(w.biases[j:], p.w.Biases, p.w.Side, (o+row)*groups, groups)
		}
		p.nibbleColumns(s.vector, &w, p.at+o-p.from, n)
	}
}

// nibbleColumns computes n columns of y from col on.
func (p *product) nibbleColumns(v vector, w *nibbleRows, col, n int) {
	var c [fewRows * nibbleLanes]float32
	var xs [fewRows]*float32
	for i := 0; i < p.x.n; {
		rows := [fewRows + 1]int{0, 1, 2, 2, 4}[p.x.n-i] // kernels take 1, 2 or 4
		for r := range rows {
			xs[r] = &p.x.at(i + r)[0]
		}
		v.nibbleDots(&c, &xs, w, rows)
		for r := range rows {
			copy(p.y.at(i + r)[col:col+n], c[r*nibbleLanes:])
		}
		i += rows
	}
}

// sides writes the scales or biases of a row's groups, the first of which is number `first` of data, to one lane of
// dst [groups, nibbleLanes].
func sides(dst []float32, data []byte, f ops.Format, first, groups int) {
	if f != ops.BF16 {
		for g := range groups {
			dst[g*nibbleLanes] = side(data, f, first+g)
		}
		return
	}
	data = data[2*first : 2*(first+groups)]
	for g := 0; len(data) >= 2; g += nibbleLanes {
		dst[g] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data)) << 16)
		data = data[2:]
	}
}
