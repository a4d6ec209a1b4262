//go:build !amd64

package fma

// Strips are for the kernels of amd64; no other set comes here.

func (s Set) stripDots(c Rows, x, panel []float32, t Tile) {
	panic("fma: no such kernels for this processor")
}

func (s Set) packStrip(dst []float32, rows [][]float32, n int) {
	panic("fma: no such kernels for this processor")
}
