package fma

// stripDots is the product of a strip of x with a panel. A strip of some rows is computed with a row that stands in for
// one that is missing, so c has room for an even number.
func (s Set) stripDots(c Rows, x, panel []float32, t Tile) {
	if s == AVX512 {
		stripKernels(t.Rows)[t.Columns/Lanes](&c.Data[0], c.Step, &x[0], &panel[0], t.Inputs, t.First)
		return
	}
	f := [...]stripKernel{strip256x2x2, strip256x4x2, strip256x6x2}[(t.Rows-1)/2]
	for j := 0; j < t.Columns; j += half {
		f(&c.Data[j], c.Step, &x[0], &panel[j], t.Inputs, t.First)
	}
}

type stripKernel = func(c *float32, ldc int, x, panel *float32, n int, first bool)

// stripKernels are those for 16 and 32 columns.
func stripKernels(rows int) [2]stripKernel {
	switch {
	case rows <= 2:
		return [2]stripKernel{strip512x2x1, strip512x2x2}
	case rows <= 4:
		return [2]stripKernel{strip512x4x1, strip512x4x2}
	case rows <= 6:
		return [2]stripKernel{strip512x6x1, strip512x6x2}
	}
	return [2]stripKernel{strip512x8x1, strip512x8x2}
}

// packStrip sets dst[len(rows)*i+r] to element i of row r for i < n.
func (s Set) packStrip(dst []float32, rows [][]float32, n int) {
	whole, strip := n&^3, len(rows)
	if whole > 0 {
		var at [Strip]*float32
		for r := range rows {
			at[r] = &rows[r][0]
		}
		if strip == Strip {
			_ = dst[strip*n-1]
			pack256x8(&dst[0], &at[0], whole)
		} else {
			_ = dst[strip*n+1]
			pack256x6(&dst[0], &at[0], whole)
		}
	}
	for i := whole; i < n; i++ {
		for r, row := range rows {
			dst[strip*i+r] = row[i]
		}
	}
}
