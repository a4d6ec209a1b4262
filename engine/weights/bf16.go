package weights

import "math"

// ToBF16 rounds a finite number to bf16: to nearest, halves to even.
func ToBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
