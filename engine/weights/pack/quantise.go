package pack

import (
	"encoding/binary"
	"fmt"
	"math"

	"lector/engine/weights"
)

// quantiseRow writes one row by MLX's affine rule: codes as one little-endian bit stream, then for each group a
// scale and a bias. Codes are computed with the scale and bias in float32, which are only then rounded to the
// source's type. values must be finite and divide into groups.
func quantiseRow(values []float32, m weights.PackedMatrix, codes, scales, biases []byte) error {
	width := m.Group * m.Bits / 8
	for g := 0; g < len(values); g += m.Group {
		scale, bias, err := quantiseGroup(values[g:g+m.Group], m.Bits, codes[:width])
		if err != nil {
			return fmt.Errorf("value %d: %w", g, err)
		}
		codes = codes[width:]
		scales, biases = putFloat(scales, m.Side, scale), putFloat(biases, m.Side, bias)
	}
	return nil
}

// quantiseGroup anchors the code range at the end of larger magnitude, so that this value is met as well as zero.
func quantiseGroup(group []float32, bits int, codes []byte) (scale, bias float32, err error) {
	lo, hi := group[0], group[0]
	for _, v := range group {
		if v-v != 0 {
			return 0, 0, fmt.Errorf("%v cannot be quantised", v)
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	top := float32(int(1)<<bits - 1)
	scale = max((hi-lo)/top, 1e-7)
	edge := lo
	if !(abs(lo) > abs(hi)) {
		scale, edge = -scale, hi
	}
	if q0 := rint(edge / scale); q0 != 0 {
		scale, bias = edge/q0, edge
	}
	if scale-scale != 0 {
		return 0, 0, fmt.Errorf("values from %v to %v are too far apart", lo, hi)
	}
	var word uint64
	filled := 0
	for _, v := range group {
		code := min(max(rint((v-bias)/scale), 0), top)
		word |= uint64(code) << filled
		for filled += bits; filled >= 8; filled -= 8 {
			codes[0] = byte(word)
			codes, word = codes[1:], word>>8
		}
	}
	return scale, bias, nil
}

// rint rounds to the nearest whole number, halves to even.
func rint(v float32) float32 { return float32(math.RoundToEven(float64(v))) }

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// putFloat stores a number as type d at the start of dst and returns the rest of dst.
func putFloat(dst []byte, d weights.DType, v float32) []byte {
	switch d {
	case weights.BF16:
		binary.LittleEndian.PutUint16(dst, weights.ToBF16(v))
		return dst[2:]
	case weights.F16:
		binary.LittleEndian.PutUint16(dst, toHalf(v))
		return dst[2:]
	}
	binary.LittleEndian.PutUint32(dst, math.Float32bits(v))
	return dst[4:]
}

// toHalf rounds to an IEEE half, to nearest, halves to even; what is too large becomes infinite.
func toHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, rest := uint16(bits>>16)&0x8000, bits&^(1<<31)
	switch {
	case rest >= 0x47800000: // 65536 and above, infinite, or no number
		if rest > 0x7f800000 {
			return sign | 0x7e00
		}
		return sign | 0x7c00
	case rest < 0x38800000: // below 2^-14: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(rest))*0x1p24))
	}
	rest -= 112 << 23
	return sign | uint16((rest+0xfff+rest>>13&1)>>13)
}
