package fma

// Lanes is how many outputs a panel holds side by side.
const Lanes = 32

// Tile is the size of a product of rows with panels.
type Tile struct {
	Rows    int  // of x and c
	Columns int  // of c: a multiple of 16
	Inputs  int  // of a row of x
	Next    int  // floats from one panel to the next, where there are more than 32 columns
	Step    int  // floats from one input to the next in a panel; 0 means 32
	First   bool // the chains start at zero instead of at c
}

// Rows are rows of floats at equal distances.
type Rows struct {
	Data []float32 // from the first row on
	Step int       // floats from one row to the next
}

// from is the rows from row r on, and in them the columns from c on.
func (x Rows) from(r, c int) Rows { return Rows{x.Data[r*x.Step+c:], x.Step} }

// Dots goes on with the chains of c [Rows, Columns]: c[r, j] += x[r, i] * w[i, j], i ascending, fused. w[i, j] is
// panel[j/32*Next + i*Step + j%32].
func (s Set) Dots(c, x Rows, panel []float32, t Tile) {
	if t.Rows <= 0 || t.Columns <= 0 {
		return
	}
	if t.Step == 0 {
		t.Step = Lanes
	}
	if t.Inputs > 0 { // the kernels check nothing
		_ = x.Data[(t.Rows-1)*x.Step+t.Inputs-1]
		_ = panel[(t.Columns-1)/Lanes*t.Next+(t.Inputs-1)*t.Step+(t.Columns-1)%Lanes]
		_ = c.Data[(t.Rows-1)*c.Step+t.Columns-1]
	}
	if s == Plain || t.Inputs <= 0 {
		dotsPlain(c, x, panel, t)
		return
	}
	for r := 0; r < t.Rows; {
		n := s.rows(t.Rows - r)
		s.strip(c.from(r, 0), x.from(r, 0), panel, t.of(n, t.Columns))
		r += n
	}
}

// strip is Dots for as many rows as one kernel takes.
func (s Set) strip(c, x Rows, panel []float32, t Tile) {
	for j := 0; j < t.Columns; {
		n := s.columns(t.Rows, j, t.Columns-j)
		s.dots(c.from(0, j), x, panel[j/Lanes*t.Next+j%Lanes:], t.of(t.Rows, n))
		j += n
	}
}

// of is the tile with other rows and columns.
func (t Tile) of(rows, columns int) Tile {
	t.Rows, t.Columns = rows, columns
	return t
}
