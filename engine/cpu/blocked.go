package cpu

import (
	"runtime"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// chains is what one goroutine multiplies in, in the class cpu-f32-blocked and those made from it.
type chains struct {
	set     fma.Set
	copies  *shelf // of weights
	temp    fma.Temp
	panels  []float32 // decoded weights
	packed  []float32 // rows of x, close together
	strips  fma.Packed
	packing packing    // what strips are
	tile    []float32  // chains of a ragged end, or of few rows
	amx     *registers // in the class cpu-amx, else nil
	bfp     *integers  // in the class cpu-bfp24, else nil
}

const (
	// fewChains is up to how many rows of x are multiplied with several panels side by side: a chain is slow, and few
	// rows have few of them.
	fewChains = 8
	// fewPanels is how many panels that are.
	fewPanels = 4
	// blockedRows is the most rows of x that meet a panel before the next.
	blockedRows = 512
	// blockedOutputs is how many outputs an item of work takes where there are many rows.
	blockedOutputs = 256
)

// runChains computes the product by fused chains (package fma). How it is cut changes no bit.
func (p product) runChains(c *chains) {
	switch {
	case c.tiles(p.w):
		p.runTiles(c)
		return
	case c.integer(p.w):
		p.runIntegers(c)
		return
	case p.x.n <= fma.FewRows && c.set.SuitsFew(p.w) && !(p.w.Tiled > 0 && p.from%(fma.Lanes/2) != 0):
		p.fewCodes(c)
		return
	case p.x.n <= fma.FewRows && c.set.SuitsUpper(p.w) && p.from%(fma.Lanes/2) == 0 && c.tiled(p.w) != nil:
		p.fewCodes(c)
		return
	case p.x.n <= fewChains:
		p.fewRows(c)
		return
	}
	c.manyRows(p.x.n, p)
}

// near brings near what products with m begin with, from output row on.
func (c *chains) near(m *ops.Matrix, row int) {
	fma.Outputs{Then: product{w: m, from: row}.inTiles(c).w, ThenRow: row}.Near(c.set)
}

// manyRows computes products of the same x, whose matrices have inputs of one kind, for n rows.
func (c *chains) manyRows(n int, ps ...product) {
	for i, p := range ps {
		if p.w.Format == ops.Affine {
			ps[i] = p.inTiles(c)
		}
	}
	rows := rowsOf(c.set, ps[0].w)
	for top := 0; top < n; top += rows {
		c.block(ps, top, min(rows, n-top))
	}
}

// rowsOf is how many rows of x meet a panel before the next: so many of a block of inputs stay in the second cache.
func rowsOf(set fma.Set, w *ops.Matrix) int {
	return max(fma.Strip, min(blockedRows, set.PackedFloats()/max(1, min(w.In, set.Inputs())))/fma.Strip*fma.Strip)
}

// fewCodes decodes weights in registers.
func (p *product) fewCodes(c *chains) {
	x := p.few(c)
	tile := fma.Rows{Data: floats(&c.tile, fma.FewRows*fma.FewOutputs), Step: fma.FewOutputs}
	w := p.inTiles(c).w
	first := p.from
	if n := (p.to - first) / fma.FewOutputs * fma.FewOutputs; n > 0 && w.Tiled == fma.FewOutputs && first%fma.FewOutputs == 0 && p.y.list == nil {
		y := fma.Rows{Data: p.y.data[p.y.first*p.y.stride+p.at:], Step: p.y.stride}
		c.set.FewTiles(y, x, p.x.n, p.outputs(c, w, first, n))
		first += n
	}
	for o := first; o < p.to; o += fma.FewOutputs {
		n := min(fma.FewOutputs, p.to-o)
		c.set.Few(tile, x, p.x.n, p.outputs(c, w, o, n), &c.temp)
		p.keep(tile, 0, o, n)
	}
}

// outputs are n outputs of w, p's matrix or its own copy, from one on, and what comes after them.
func (p *product) outputs(c *chains, w *ops.Matrix, from, n int) fma.Outputs {
	out := fma.Outputs{Matrix: w, Row: from, N: n}
	switch {
	case from+n < p.to:
		out.Then, out.ThenRow = w, from+n
	case p.then.w != nil:
		out.Then, out.ThenRow = product{w: p.then.w, from: p.then.from}.inTiles(c).w, p.then.from
	}
	return out
}

// inTiles is p by its matrix's own copy in tiles, where there is one and p begins with a tile.
func (p product) inTiles(c *chains) product {
	if own := c.tiled(p.w); own != nil && p.from%(fma.Lanes/2) == 0 {
		p.w = own
	}
	return p
}

// tiled is a matrix's own copy in tiles, or nil where it has no place for one.
func (c *chains) tiled(m *ops.Matrix) *ops.Matrix {
	if m.Panels == nil {
		return nil
	}
	if own, ok := m.Panels.Made().(*ops.Matrix); ok {
		return own
	}
	return c.makeTiles(*m)
}

// makeTiles makes a matrix's own copy, once.
func (c *chains) makeTiles(m ops.Matrix) *ops.Matrix {
	own, _ := m.Panels.Copy(func() any {
		memory, free, err := c.copies.get(fma.TileBytes(&m))
		if err != nil {
			return nil // it works without
		}
		own := c.set.Tile(&m, across(c.set, &m, c.amx != nil || c.bfp != nil && c.bfp.set.Tile() < fma.FewOutputs), memory)
		runtime.AddCleanup(own, func(free func()) { free() }, free)
		return own
	}).(*ops.Matrix)
	return own
}

// PanelBytes is the memory that a copy of m takes where few rows are multiplied with it: 0 where there is none.
func (b *Backend) PanelBytes(m ops.Matrix) int {
	small := b.class != AMX && m.Precise && b.chains.SuitsUpper(&m) // what is not quantised beside weights that are
	few := b.chains.SuitsFew(&m) || b.class == BFP && b.integers.SuitsTiles(&m)
	if !b.fused() || !small && !few {
		return 0
	}
	return fma.TileBytes(&m)
}

var _ ops.Arranger = (*Backend)(nil)

// Arranges says that matrices like m are read faster in tiles.
func (b *Backend) Arranges(m *ops.Matrix) int {
	if !b.fused() || !b.chains.SuitsTiles(m) {
		return 0
	}
	return across(b.chains, m, b.class == AMX || b.class == BFP && b.integers.Tile() < fma.FewOutputs)
}

// across is how many outputs the tiles of m have side by side: tile registers, and integers with AVX2, know narrow ones alone.
func across(set fma.Set, m *ops.Matrix, narrow bool) int {
	if narrow {
		return fma.Lanes / 2
	}
	return set.Across(m)
}

// Arrange brings a matrix into tiles.
func (b *Backend) Arrange(m *ops.Matrix) {
	shapes().FitMatrix("Arrange", m)
	s := b.scratch.get(b)
	b.chains.Arrange(m, b.Arranges(m), &s.chains.temp)
	b.scratch.put(s)
}

// fewRows takes some panels side by side through a block of inputs.
func (p *product) fewRows(c *chains) {
	x := p.few(c)
	each := fma.Inputs(p.w, fma.Block/(2*fewPanels))
	panels := floats(&c.panels, fewPanels*fma.PanelFloats)
	tile := fma.Rows{Data: floats(&c.tile, fewChains*fewPanels*fma.Lanes), Step: fewPanels * fma.Lanes}
	for o := p.from; o < p.to; o += fewPanels * fma.Lanes {
		n := min(fewPanels*fma.Lanes, p.to-o)
		for k := 0; k < p.w.In; k += each {
			inputs, columns := min(each, p.w.In-k), 0
			for j := 0; j < n; j += fma.Lanes {
				part := fma.Part{Row: o + j, N: min(fma.Lanes, n-j), From: k, K: inputs}
				c.set.Unpack(panels[j/fma.Lanes*fma.PanelFloats:], p.w, part, &c.temp)
				columns += part.Columns()
			}
			c.set.Dots(tile, fma.Rows{Data: x.Data[k:], Step: x.Step}, panels,
				fma.Tile{Rows: p.x.n, Columns: columns, Inputs: inputs, Next: fma.PanelFloats, First: k == 0})
		}
		p.keep(tile, 0, o, n)
	}
}

// few is the rows of x, at equal distances.
func (p *product) few(c *chains) fma.Rows {
	if p.x.list == nil {
		return fma.Rows{Data: p.x.data[p.x.first*p.x.stride:], Step: p.x.stride}
	}
	if p.x.n == 1 {
		return fma.Rows{Data: p.x.at(0), Step: p.x.stride}
	}
	packed := floats(&c.packed, p.x.n*p.w.In)
	for r := range p.x.n {
		copy(packed[r*p.w.In:(r+1)*p.w.In], p.x.at(r))
	}
	return fma.Rows{Data: packed, Step: p.w.In}
}

// keep copies n columns of the tile, whose first row is row `top` of y, to those of output o.
func (p *product) keep(tile fma.Rows, top, o, n int) {
	for r := top; r < p.x.n && (r-top)*tile.Step < len(tile.Data); r++ {
		copy(p.y.at(r)[p.at+o-p.from:][:n], tile.Data[(r-top)*tile.Step:])
	}
}

// block computes n rows from `top` on: some inputs of them, packed, meet panel after panel. The chains stay in y meanwhile.
func (c *chains) block(ps []product, top, n int) {
	x := &ps[0]
	each := fma.Inputs(x.w, c.set.Inputs())
	panel := floats(&c.panels, (each+16)*fma.Lanes)
	for k := 0; k < x.w.In; k += each {
		inputs := min(each, x.w.In-k)
		c.pack(x, top, n, k, inputs)
		for i := range ps {
			p := &ps[i]
			for o := p.from; o < p.to; o += fma.Lanes {
				part := fma.Part{Row: o, N: min(fma.Lanes, p.to-o), From: k, K: inputs}
				c.set.Unpack(panel, p.w, part, &c.temp)
				y := fma.Rows{Data: p.y.data[(p.y.first+top)*p.y.stride+p.at+o-p.from:], Step: p.y.stride}
				c.set.Product(y, &c.strips, panel, part.N, k == 0)
			}
		}
	}
}

// together computes products of the same x: where many rows are packed alike for all, once.
func together(s *scratch, ps ...product) {
	c := s.chains
	alike := c != nil && ps[0].x.n > fewChains
	for i := range ps {
		alike = alike && !c.tiles(ps[i].w) && !c.integer(ps[i].w) && ps[i].w.In == ps[0].w.In && fma.Inputs(ps[i].w, c.set.Inputs()) == fma.Inputs(ps[0].w, c.set.Inputs())
	}
	if alike {
		c.manyRows(ps[0].x.n, ps...)
		return
	}
	for _, p := range ps {
		p.run(s)
	}
}

// packing says what rows are packed.
type packing struct{ call, first, n, from, inputs int }

// pack packs inputs [from, from+inputs) of n rows from `top` on. Those that the product before this one packed are there
// already: items of one call often differ in their outputs alone.
func (c *chains) pack(p *product, top, n, from, inputs int) {
	now := packing{p.call, p.x.first + top, n, from, inputs}
	if p.call == 0 || c.packing != now {
		c.set.Pack(&c.strips, n, from, inputs, func(i int) []float32 { return p.x.at(top + i) })
		c.packing = now
	}
}

// linearChains cuts a product into items of rows and outputs: as large as the caches like, yet some for every worker.
func (b *Backend) linearChains(y, x rows, w *ops.Matrix) {
	outputs, rows := b.cut(x.n, w)
	across := (w.Out + outputs - 1) / outputs
	down := (x.n + rows - 1) / rows
	call := b.newCall()
	b.parallel(across*down, grain(rows*w.In*outputs), func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			top, o := i/across*rows, i%across*outputs
			end := min(top+rows, x.n)
			product{y: y.span(top, end), at: o, x: x.span(top, end), w: w, from: o, to: min(o+outputs, w.Out), call: call}.run(s)
		}
	})
}

// newCall is a number that no other call of an operation has; never 0.
func (b *Backend) newCall() int { return b.newCalls(1) }

// newCalls is the first of n such numbers.
func (b *Backend) newCalls(n int) int { return int(b.calls.Add(int64(n))) - n + 1 }

// cut is how many outputs and rows an item takes.
func (b *Backend) cut(n int, w *ops.Matrix) (outputs, rows int) {
	outputs, rows = blockedOutputs, min(n, rowsOf(b.chains, w))
	items := func() int { return (w.Out + outputs - 1) / outputs * ((n + rows - 1) / rows) }
	for b.workers > 1 && items() < 2*b.workers {
		switch {
		case outputs > fma.FewOutputs && (n <= fewChains || outputs > fewPanels*fma.Lanes):
			outputs /= 2
		case rows >= 64:
			rows = (rows/2 + 7) &^ 7
		case outputs > fma.Lanes:
			outputs /= 2
		default:
			return outputs, rows
		}
	}
	return outputs, rows
}
