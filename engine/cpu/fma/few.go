package fma

import "lector/engine/ops"

const (
	// FewRows is up to how many rows Few takes.
	FewRows = 4
	// FewOutputs is how many outputs Few computes side by side.
	FewOutputs = 64

	fewHalves = FewOutputs / half
	fewWords  = 64 // of a row at a time: what is decoded next is brought near a row for every word
)

// SuitsFew says that Few knows weights of this kind.
func (s Set) SuitsFew(m *ops.Matrix) bool { return (s == AVX512 || s == AVX2) && fewCodes(m) }

// fewCodes says that weights are of a kind that kernels for few rows know.
func fewCodes(m *ops.Matrix) bool {
	return m.Format == ops.Affine && (m.Bits == 4 || m.Bits == 6 || m.Bits == 8) && m.Group*m.Bits%32 == 0 && m.Group*m.Bits/32 <= fewWords && whole(m)
}

// SuitsUpper says that Few knows the tiles (Tile) of weights of this kind, which are in bf16.
func (s Set) SuitsUpper(m *ops.Matrix) bool {
	return (s == AVX512 || s == AVX2) && m.Format == ops.BF16 && m.In > 0
}

// halves is how many registers, or pairs of them, of 16 outputs kernels for some rows have chains in.
func (s Set) halves(rows int) int {
	if s == AVX2 {
		return fewHalves / rows
	}
	return fewHalves
}

// Few computes c[r, j] = the product of row r of x and output p.Row+j of m, for p.N <= FewOutputs outputs and `rows` <=
// FewRows rows. A row of x has m.In floats, one of c room for p.N rounded up to whole registers of 16. The weights are
// decoded in registers: the bits are those of Unpack and Dots. Of tiled weights Row is a multiple of 16.
func (s Set) Few(c, x Rows, rows int, w Outputs, t *Temp) {
	if s == AVX2 && w.Format == ops.Affine && w.Tiled != FewOutputs {
		s.fewPanels(c, x, rows, w, t)
		return
	}
	if w.Tiled > 0 {
		s.fewTiled(c, x, rows, w, t)
		return
	}
	m, f := w.Matrix, fewRun{w: w, t: t}
	_, _ = x.Data[(rows-1)*x.Step+m.In-1], c.Data[(rows-1)*c.Step+(w.N+half-1)/half*half-1]
	f.bytes, f.all = m.Group*m.Bits/8, m.In/m.Group
	each := fewWords * 4 / f.bytes // groups at a time
	call := fewCall{c: c, x: x, periods: m.Group / Period(m.Bits), bits: m.Bits,
		words: Rows{Grow(&t.words, fewHalves*(fewWords+16)*half), (fewWords + 16) * half},
		sides: Rows{Grow(&t.scales, fewHalves*(f.all+16)*2*half), (f.all + 16) * 2 * half}}
	f.sides(s, call.sides)
	for g := 0; g < f.all; g += each {
		call.groups, call.first = min(each, f.all-g), g == 0
		f.words(s, call.words, g, call.groups)
		call.ahead = f.ahead(g + call.groups)
		s.fewHalves(call, w.N, rows)
		call.x, call.sides = x.from(0, min(g+each, f.all-1)*m.Group), call.sides.from(0, call.groups*2*half)
	}
}

// fewPanels is Few by way of panels: AVX2 has kernels for tiles of 64 outputs alone.
func (s Set) fewPanels(c, x Rows, rows int, w Outputs, t *Temp) {
	m := w.Matrix
	each := Inputs(m, max(Block/4, m.Group))
	next := (each + 16) * Lanes
	panels := Grow(&t.panels, FewOutputs/Lanes*next)
	for k := 0; k < m.In; k += each {
		inputs := min(each, m.In-k)
		for j := 0; j < w.N; j += Lanes {
			s.Unpack(panels[j/Lanes*next:], m, Part{w.Row + j, min(Lanes, w.N-j), k, inputs}, t)
		}
		s.Dots(c, x.from(0, k), panels, Tile{Rows: rows, Columns: padded(w.N), Inputs: inputs, Next: next, First: k == 0})
	}
}

// fewTiled is Few of tiled weights, whose words are read where they stand, and their sides too if they are in bf16.
func (s Set) fewTiled(c, x Rows, rows int, w Outputs, t *Temp) {
	m := w.Matrix
	if m.Tiled == FewOutputs {
		s.fewWithin(c, x, rows, w, t)
		return
	}
	_, _ = x.Data[(rows-1)*x.Step+m.In-1], c.Data[(rows-1)*c.Step+(w.N+half-1)/half*half-1]
	if m.Format == ops.BF16 {
		_ = m.Data[2*(w.Row+(w.N+half-1)/half*half)*m.In-1]
		s.fewHalves(fewCall{c: c, x: x, words: Rows{floatsOf(m.Data[2*w.Row*m.In:]), m.In * half / 2}, inputs: m.In, ahead: w.ahead(s)}, w.N, rows)
		return
	}
	row, groups := m.In*m.Bits/8, m.In/m.Group
	_ = m.Data[(w.Row+w.N)*row-1]
	call := fewCall{c: c, x: x, words: Rows{tiledWords(m, w.Row, 0).Data, row / 4 * half}, bits: m.Bits,
		groups: groups, periods: m.Group / Period(m.Bits), ahead: w.ahead(s), first: true}
	if m.Side == ops.BF16 {
		from, to := w.Row*groups*2, (w.Row+(w.N+half-1)/half*half)*groups*2
		call.scales, call.biases, call.sides = m.Scales[from:to], m.Biases[from:to], Rows{Step: groups * half / 2}
	} else {
		call.sides = s.tileSides(m, w.Row, w.N, t)
	}
	s.fewHalves(call, w.N, rows)
}

// fewWithin is Few of tiles of 64 outputs, all of which it computes.
func (s Set) fewWithin(c, x Rows, rows int, w Outputs, t *Temp) {
	each := Rows{Grow(&t.scales, FewRows*FewOutputs), FewOutputs}
	for done := 0; done < w.N; {
		tile, from := w, (w.Row+done)%FewOutputs
		tile.Row, tile.N = w.Row+done-from, FewOutputs
		s.FewTiles(each, x, rows, tile)
		n := min(FewOutputs-from, w.N-done)
		for r := range rows {
			copy(c.Data[r*c.Step+done:][:n], each.Data[r*each.Step+from:])
		}
		done += n
	}
}

// FewTiles is Few of p.N outputs, any number of whole tiles of 64 outputs: no more of c is written.
func (s Set) FewTiles(c, x Rows, rows int, w Outputs) {
	m := w.Matrix
	row, groups := m.In*m.Bits/8, m.In/m.Group
	_, _ = x.Data[(rows-1)*x.Step+m.In-1], c.Data[(rows-1)*c.Step+w.N-1]
	k := tilesCall{m.Data[w.Row*row : (w.Row+w.N)*row], m.Scales[2*w.Row*groups : 2*(w.Row+w.N)*groups], m.Biases[2*w.Row*groups : 2*(w.Row+w.N)*groups],
		m.Bits, groups, m.Group / Period(m.Bits), w.N / FewOutputs}
	w.Near(s)
	for r := 0; r < rows; {
		part := [...]int{0, 1, 2, 2, 4}[rows-r]
		s.fewTiles(part, c.from(r, 0), x.from(r, 0), k)
		r += part
	}
}

// tilesCall is what kernels of FewTiles know of the weights.
type tilesCall struct {
	codes, scales, biases        []byte
	bits, groups, periods, tiles int
}

// Near brings the beginning of what comes next near, if it is in tiles that kernels take through memory as one stream, of 64
// outputs, or of 16 with AVX2: these do so only with what follows in memory.
func (w Outputs) Near(s Set) {
	m := w.Then
	if m == nil || m.Tiled != FewOutputs && !(s == AVX2 && m.Tiled == half && m.Format == ops.Affine) || m == w.Matrix && w.ThenRow == w.Row+w.N {
		return
	}
	row, side := m.In*m.Bits/8, 2*m.In/m.Group
	at := min(w.ThenRow, m.Out)
	s.near(first(m.Data[at*row:], tilesAhead))
	s.near(first(m.Scales[at*side:], sidesAhead))
	s.near(first(m.Biases[at*side:], sidesAhead))
}

// tilesAhead and sidesAhead are how far kernels of FewTiles bring codes, and scales and biases, near.
const (
	tilesAhead = 4096
	sidesAhead = 512
)

func first(b []byte, n int) []byte { return b[:min(n, len(b))] }

// ahead brings the sides of what comes next near, and says where its codes begin.
func (w Outputs) ahead(s Set) stored {
	m, row := w.Then, w.ThenRow
	if m == nil || m.Tiled == 0 {
		m, row = w.Matrix, w.Row
	}
	for _, sides := range [][]byte{m.Scales, m.Biases} {
		each := len(sides) / m.Out
		s.near(sides[min(row, m.Out)*each : min(row+FewOutputs, m.Out)*each])
	}
	return stored{data: m.Data[min(row*(len(m.Data)/m.Out), len(m.Data)-1):], stride: 4 * FewOutputs}
}

// Outputs are N outputs of a matrix from Row on. If it is tiled, what is multiplied next is brought near meanwhile: the
// outputs of Then from ThenRow on, or more of these where Then is nil.
type Outputs struct {
	*ops.Matrix
	Row, N  int
	Then    *ops.Matrix
	ThenRow int
}

// part is the outputs from h on, at most 16, and all inputs.
func (w Outputs) part(h int) Part { return Part{w.Row + h, min(half, w.N-h), 0, w.In} }

// fewRun is one call of Few.
type fewRun struct {
	w          Outputs
	t          *Temp
	bytes, all int // of a group's codes; groups of a row
}

// sides fills dst: scales and biases side by side.
func (f *fewRun) sides(s Set, dst Rows) {
	for h := 0; h < f.w.N; h += half {
		at := dst.Data[h/half*dst.Step:]
		s.sides(Rows{at, 2 * half}, f.w.Scales, f.w.Matrix, f.w.part(h), f.t)
		s.sides(Rows{at[half:], 2 * half}, f.w.Biases, f.w.Matrix, f.w.part(h), f.t)
	}
}

// words fills dst with the codes of n groups from g on.
func (f *fewRun) words(s Set, dst Rows, g, n int) {
	for h := 0; h < f.w.N; h += half {
		src := f.t.source(stored{f.w.Data, f.all * f.bytes, n * f.bytes / 4}, g*f.bytes, 4, f.w.part(h))
		s.transpose32(Rows{dst.Data[h/half*dst.Step:], half}, src)
	}
}

// ahead is where the codes of group g begin, or those of the outputs that follow.
func (f *fewRun) ahead(g int) stored {
	row := f.all * f.bytes
	at := f.w.Row*row + g*f.bytes
	if g >= f.all {
		at = (f.w.Row + f.w.N) * row
	}
	return stored{data: f.w.Data[min(at, len(f.w.Data)-1):], stride: row}
}

// fewCall is what a kernel of Few takes.
type fewCall struct {
	c, x            Rows
	words           Rows   // a row is the codes of 16 outputs
	sides           Rows   // a row is the scales and biases of 16 outputs
	scales, biases  []byte // of tiles in bf16, in rows as long as those of sides; nil: they are in sides
	bits            int
	inputs          int // of weights in bf16; 0: they are codes
	groups, periods int
	ahead           stored
	first           bool
}

// fewHalves runs the kernels over n outputs.
func (s Set) fewHalves(k fewCall, n, rows int) {
	for r := 0; r < rows; {
		part := [...]int{0, 1, 2, 2, 4}[rows-r]
		for h := 0; h < n; {
			halves := s.halves(part)
			for halves > 1 && n-h <= (halves-1)*half {
				halves /= 2
			}
			at := k
			at.c, at.x = k.c.from(r, h), k.x.from(r, 0)
			at.words = k.words.from(h/half, 0)
			switch {
			case k.inputs > 0:
				if s == AVX2 { // each call brings near what its share is
					at.ahead = k.ahead.past(2 * h * k.inputs)
				}
			case k.scales != nil:
				at.scales, at.biases = k.scales[h/half*4*k.sides.Step:], k.biases[h/half*4*k.sides.Step:]
			default:
				at.sides = k.sides.from(h/half, 0)
			}
			s.few(halves, part, at)
			h += halves * half
		}
		r += part
	}
}
