package fma

// Their comments stand in kernels_arm64.s.

// panelOf is a panel of n inputs, step floats apart.
type panelOf struct {
	data    *float32
	step, n int
}

//go:noescape
func dotsNEON4(c, x Rows, w panelOf, first bool)

//go:noescape
func dotsNEON1(c, x *float32, w panelOf, first bool)

//go:noescape
func dotsNEONHalf(c, x *float32, w panelOf, first bool)

//go:noescape
func affineNEON(panel *float32, codes *uint32, n int, scales, biases *float32)

//go:noescape
func nibblesNEON(panel *float32, words *uint32, n int, scales, biases *float32)
