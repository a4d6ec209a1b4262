package fma

// stripDots is the product of a strip of x with a panel. A strip of some rows is computed with the rows that stand in
// for those that are missing, so c has room for 4 or 8.
func (s Set) stripDots(c Rows, x, panel []float32, t Tile) {
	f := strip512x8x2
	switch {
	case t.Rows <= 4 && t.Columns == half:
		f = strip512x4x1
	case t.Rows <= 4:
		f = strip512x4x2
	case t.Columns == half:
		f = strip512x8x1
	}
	f(&c.Data[0], c.Step, &x[0], &panel[0], t.Inputs, t.First)
}

// packStrip sets dst[8*i+r] to element i of row r for i < n.
func (s Set) packStrip(dst []float32, rows *[Strip][]float32, n int) {
	whole := n &^ 3
	if whole > 0 {
		var at [Strip]*float32
		for r := range rows {
			at[r] = &rows[r][0]
		}
		_ = dst[Strip*n-1]
		pack256x8(&dst[0], &at[0], whole)
	}
	for i := whole; i < n; i++ {
		for r, row := range rows {
			dst[Strip*i+r] = row[i]
		}
	}
}
