package amx

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// Set names who multiplies.
type Set uint8

const (
	Plain Set = iota // Go
	Tiles            // tile registers, where Here
)

const (
	// Group is how many inputs of bf16 weights are added up before their sum is rounded to the row's.
	Group = 64
	// Outputs is how many outputs a panel has.
	Outputs = fma.Lanes
	// Rows is how many rows of x meet a panel at a time.
	Rows = 32

	step  = 32               // inputs of a tile
	parts = 3                // bf16 of a float32
	high  = 16               // rows of a tile, and outputs
	size  = high * step      // bf16 of a tile
	both  = 2 * size         // of the two tiles of a step of a panel
	room  = 16 * 2 * Outputs // floats that the unpacking of sides writes too much
)

// Suits says that this arithmetic knows weights of this kind. Others are multiplied as in the class cpu-f32-blocked.
func Suits(m *ops.Matrix) bool {
	switch m.Format {
	case ops.BF16:
		return m.In%Group == 0
	case ops.Affine:
		return m.Group%step == 0 && m.Group <= fma.Block && m.In%m.Group == 0 && m.Bits <= 8 && fma.SuitsCodes(m)
	}
	return false
}

// cut is how inputs are gone through.
type cut struct {
	groups int
	steps  int // of a group
}

func cutOf(m *ops.Matrix) cut {
	g := GroupOf(m)
	return cut{m.In / g, g / step}
}

// all is how many steps there are.
func (c cut) all() int { return c.groups * c.steps }

// GroupOf is how many inputs of m are added up together.
func GroupOf(m *ops.Matrix) int {
	if m.Format == ops.Affine {
		return m.Group
	}
	return Group
}

// PackedBytes is the memory that a row of x with so many inputs takes when it is packed.
func PackedBytes(inputs int) int { return 2 * parts * inputs }

// Packed are rows of x, ready for tiles. The zero value is ready for Pack, which reuses its memory.
type Packed struct {
	cut
	parts []uint16  // bf16 [rows/16, steps, parts, 16, 32]
	sums  []float32 // [rows/32, groups, 32]
	n     int       // rows
}

// Pack splits n rows of x, which `at` names, for products with weights like m.
func (s Set) Pack(p *Packed, n int, at func(r int) []float32, m *ops.Matrix) {
	s.pack(p, n, at, m, high)
}

// pack is Pack for kernels that go through so many rows of a tile.
func (s Set) pack(p *Packed, n int, at func(r int) []float32, m *ops.Matrix, rows int) {
	p.n, p.cut = n, cutOf(m)
	whole := (n + Rows - 1) / Rows * Rows
	p.parts, p.sums = fma.Grow(&p.parts, whole*m.In*parts), fma.Grow(&p.sums, whole*p.groups)
	for r := 0; r < n; r += high {
		var from [high][]float32
		for i := range min(high, n-r) {
			from[i] = at(r + i)[:m.In]
		}
		s.split(p, r, min(high, n-r), &from)
		for i := n - r; i < rows; i++ { // what lies in a tile beside rows that are wanted is computed with them, and no more
			p.zero(r, i)
		}
	}
}

// split fills a tile's rows and their sums.
func (s Set) split(p *Packed, first, n int, rows *[high][]float32) {
	to, sums := p.parts[first*p.all()*step*parts:], p.sums[first/Rows*Rows*p.groups+first%Rows:]
	if s == Plain {
		splitPlain(to, sums, rows[:n], p.cut)
		return
	}
	c := splitting{to: &to[0], sums: &sums[0], groups: p.groups, steps: p.steps, n: n}
	for i := range n {
		c.rows[i] = &rows[i][0]
	}
	split(&c)
}

func (p *Packed) zero(first, row int) {
	to := p.parts[first*p.all()*step*parts+row*step:]
	for t := range p.all() * parts {
		clear(to[t*size:][:step])
	}
}

// Panel is up to 32 outputs of a matrix, ready for tiles. The zero value is ready for Unpack, which reuses its memory.
type Panel struct {
	cut
	pairs  []uint16  // bf16 [steps, 2, 16, 16, 2]: pairs of inputs of 16 outputs
	sides  []float32 // [groups, 2, 32]
	floats []float32
	temp   fma.Temp
}

// Unpack brings n <= 32 outputs of m, which Suits, into the panel, from output o on.
func (s Set) Unpack(w *Panel, m *ops.Matrix, o, n int) {
	w.cut = cutOf(m)
	w.floats = fma.Grow(&w.floats, fma.PanelFloats)
	w.pairs, w.sides = fma.Grow(&w.pairs, w.all()*both), fma.Grow(&w.sides, w.groups*2*Outputs+room)
	s.around(w, m, fma.Part{Row: o, N: n, K: m.In})
	if s == Tiles && m.Format == ops.Affine && m.Bits == 4 && s.nibbles(w, m, o, n) {
		return
	}
	each := fma.Block / GroupOf(m) * GroupOf(m)
	for k := 0; k < m.In; k += each {
		p := fma.Part{Row: o, N: n, From: k, K: min(each, m.In-k)}
		if m.Format == ops.Affine {
			s.chains().Codes(w.floats, m, p, &w.temp)
		} else {
			s.chains().Unpack(w.floats, m, p, &w.temp)
		}
		if to := w.pairs[k/step*both:]; s == Tiles {
			pair(&to[0], &w.floats[0], p.K/step)
		} else {
			pairPlain(to, w.floats, p.K/step)
		}
	}
}

// chains is who unpacks.
func (s Set) chains() fma.Set {
	if s == Tiles {
		return fma.Widest()
	}
	return fma.Plain
}

// around sets the sides of a panel.
func (s Set) around(w *Panel, m *ops.Matrix, p fma.Part) {
	if m.Format == ops.Affine {
		s.chains().Sides(w.sides, m, p, &w.temp)
		if s == Tiles {
			center(&w.sides[0], w.groups, fma.Middle(m))
		} else {
			centerPlain(w.sides, w.groups, fma.Middle(m))
		}
		return
	}
	for g := range w.groups {
		sides := w.sides[g*2*Outputs:][:2*Outputs]
		clear(sides[Outputs:])
		for j := range Outputs {
			sides[j] = 1
		}
	}
}

// nibbles unpacks codes of 4 bits from the words that they are stored in, where those can be had.
func (s Set) nibbles(w *Panel, m *ops.Matrix, o, n int) bool {
	for from := 0; from < n; from += high {
		words := s.chains().Words(m, fma.Part{Row: o + from, N: min(high, n-from), K: m.In}, &w.temp)
		if words.Data == nil || words.Step != high {
			return false
		}
		pair4(&w.pairs[from/high*size], &words.Data[0], w.all())
	}
	return true
}

// Temp is what Multiply works in. The zero value is ready.
type Temp struct {
	y    [Rows * Outputs]float32
	sums [Rows * Outputs]float32 // of a group
}

// Multiply calls keep with the products of every row of x and the outputs of w.
func (s Set) Multiply(x *Packed, w *Panel, t *Temp, keep func(r int, products *[Outputs]float32)) {
	for r := 0; r < x.n; r += Rows {
		clear(t.y[:])
		s.block(x, w, r, t)
		for i := range min(Rows, x.n-r) {
			keep(r+i, (*[Outputs]float32)(t.y[i*Outputs:]))
		}
	}
}

// block adds up the products of up to 32 rows from r on.
func (s Set) block(x *Packed, w *Panel, r int, t *Temp) {
	tiles := x.all() * parts * size
	upper, sums := x.parts[r/high*tiles:], x.sums[r*x.groups:]
	_, _ = w.pairs[x.all()*both-1], w.sides[x.groups*2*Outputs-1]
	c := call{to: &t.y[0], upper: &upper[0], pairs: &w.pairs[0], sides: &w.sides[0], sums: &sums[0], temp: &t.sums[0], groups: x.groups, steps: x.steps}
	switch {
	case s == Plain:
		blockPlain(t.y[:], x, w, r)
	case x.n-r <= high:
		multiply16(&c)
	case x.steps == 2:
		c.lower = &upper[tiles]
		multiply32x2(&c)
	default:
		c.lower = &upper[tiles]
		multiply32(&c)
	}
}
