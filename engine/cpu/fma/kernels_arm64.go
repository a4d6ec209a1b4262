package fma

// Their comments stand in kernels_arm64.s.

//go:noescape
func dotsNEON4(c, x Rows, panel *float32, n int, first bool)

//go:noescape
func dotsNEON1(c, x, panel *float32, n int, first bool)

//go:noescape
func dotsNEONHalf(c, x, panel *float32, n int, first bool)

//go:noescape
func affineNEON(panel *float32, codes *uint32, n int, scales, biases *float32)

//go:noescape
func nibblesNEON(panel *float32, words *uint32, n int, scales, biases *float32)
