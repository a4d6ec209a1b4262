package fma

// Strip is how many rows of x meet a panel at a time, at most.
const Strip = 8

// Packed are rows of x, some inputs of each, close together and in the order in which the kernels of Product read them.
// The zero value is ready to be packed into.
type Packed struct {
	data         []float32
	rows, inputs int
	edge         [Strip * Lanes]float32 // chains of a ragged end: the kernels write whole registers and whole strips
}

// Inputs is how many inputs at a time a product of many rows takes best: the second cache holds a panel of them beside
// the packed rows that it meets.
func (s Set) Inputs() int {
	if s == AVX512 {
		return Block
	}
	return Block / 2
}

// PackedFloats is about the size of packed rows that the second cache holds: processors with AVX-512 have large ones.
func (s Set) PackedFloats() int {
	if s == AVX512 {
		return 1 << 18
	}
	return 1 << 17
}

// stripRows is how many rows of x meet a panel at a time.
func (s Set) stripRows() int {
	switch s {
	case AVX512:
		return Strip
	case AVX2:
		return 6
	}
	return 0 // rows are not brought into strips
}

// Pack copies inputs [from, from+inputs) of n rows. row(i) is row i, from its first input on.
func (s Set) Pack(p *Packed, n, from, inputs int, row func(i int) []float32) {
	p.rows, p.inputs = n, inputs
	strip := s.stripRows()
	if strip == 0 {
		data := Grow(&p.data, n*inputs)
		for i := range n {
			copy(data[i*inputs:(i+1)*inputs], row(i)[from:])
		}
		return
	}
	data := Grow(&p.data, (n+strip-1)/strip*strip*inputs+Strip) // kernels write whole registers
	var rows [Strip][]float32
	for first := 0; first < n; first += strip {
		for r := range strip {
			rows[r] = row(min(first+r, n-1))[from:][:inputs] // a ragged end repeats a row; those results are dropped
		}
		s.packStrip(data[first*inputs:], rows[:strip], inputs)
	}
}

// Product goes on with the chains of c [rows of x, columns], at most 32 columns: c[r, j] += x[r, i] * panel[i*32+j], i
// ascending, fused. They start at zero if first.
func (s Set) Product(c Rows, x *Packed, panel []float32, columns int, first bool) {
	whole, edge := (columns+half-1)/half*half, Rows{x.edge[:], Lanes}
	strip := s.stripRows()
	if strip == 0 {
		strip = Strip
	}
	for r := 0; r < x.rows; r += strip {
		to, rows := Rows{c.Data[r*c.Step:], c.Step}, min(strip, x.rows-r)
		t := Tile{Rows: rows, Columns: whole, Inputs: x.inputs, First: first}
		if rows == strip && columns == whole {
			s.meet(to, x, r, panel, t)
			continue
		}
		if !first {
			copyRows(edge, to, rows, columns)
		}
		s.meet(edge, x, r, panel, t)
		copyRows(to, edge, rows, columns)
	}
}

func copyRows(to, from Rows, rows, columns int) {
	for i := range rows {
		copy(to.Data[i*to.Step:i*to.Step+columns], from.Data[i*from.Step:])
	}
}

// meet goes on with the chains of the strip of x that begins with row r.
func (s Set) meet(c Rows, x *Packed, r int, panel []float32, t Tile) {
	strip := s.stripRows()
	if strip == 0 || t.Inputs == 0 {
		s.Dots(c, Rows{x.data[r*x.inputs:], x.inputs}, panel, t)
		return
	}
	_, _ = panel[(t.Inputs-1)*Lanes+t.Columns-1], c.Data[(t.Rows-1)*c.Step+t.Columns-1]
	s.stripDots(c, x.data[r*x.inputs:(r+strip)*x.inputs], panel, t)
}
