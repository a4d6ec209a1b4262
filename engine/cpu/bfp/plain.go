package bfp

import (
	"encoding/binary"
	"math"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// splitPlain is split in Go.
func splitPlain(to []byte, x []float32, order *[16]byte, group int) {
	size := limbs*group + sideBytes
	for g := range len(x) / group {
		splitGroup(to[g*size:(g+1)*size], x[g*group:(g+1)*group], order)
	}
}

func splitGroup(to []byte, x []float32, order *[16]byte) {
	unit, many := unitOf(x)
	n := len(x)
	total := int32(0)
	for i := range x {
		from := i/16*16 + int(order[i%16])
		t := int32(0)
		if unit == unit {
			t = int32(math.RoundToEven(float64(float32(x[from] * many))))
		}
		total += t
		for limb := limbs - 1; limb >= 0; limb-- {
			to[limb*n+i] = byte(t)
			t = (t + 128) >> 8
		}
	}
	binary.LittleEndian.PutUint32(to[limbs*n:], math.Float32bits(unit))
	binary.LittleEndian.PutUint32(to[limbs*n+4:], math.Float32bits(float32(total)*unit))
}

// unitOf is the unit of a group, and how many of them are in one.
func unitOf(x []float32) (unit, many float32) {
	exponent := uint32(22)
	for _, v := range x {
		exponent = max(exponent, math.Float32bits(v)&0x7fffffff>>23)
	}
	if exponent == 255 {
		return float32(math.NaN()), 0
	}
	return math.Float32frombits((exponent - 21) << 23), math.Float32frombits((275 - exponent) << 23)
}

// bytesPlain brings codes of up to 16 outputs into a panel.
func bytesPlain(to []byte, codes []float32, p fma.Part, m *ops.Matrix) {
	order := orderOf(m.Bits)
	for i := range p.K {
		from := i/16*16 + int(order[i%16])
		for j := range p.N {
			to[(i/4*Outputs+j)*4+i%4] = byte(codes[from*fma.Lanes+j] + fma.Middle(m))
		}
	}
}

// productPlain is product in Go.
func productPlain(c fma.Rows, rows int, x *Packed, first int, w *Panel) {
	size := limbs*x.group + sideBytes
	for at := range rows * Outputs {
		r, j := at/Outputs, at%Outputs
		row, y := x.data[(first+r)*x.row():], float32(0)
		for g := range x.groups {
			p, s := groupPlain(row[g*size:(g+1)*size], w.codes[g*x.group*Outputs+4*j:], x.group)
			y = fma.FMA(w.sides[2*g*Outputs+j], p, y)
			y = fma.FMA(w.sides[(2*g+1)*Outputs+j], s, y)
		}
		c.Data[r*c.Step+j] = y
	}
}

// groupPlain is the sum of a group's products with an output's codes, and the sum of its inputs.
func groupPlain(x, codes []byte, n int) (products, inputs float32) {
	var sums [limbs]int32
	for i := range n {
		code := int32(codes[i/4*4*Outputs+i%4])
		for l := range sums {
			sums[l] += int32(int8(x[l*n+i])) * code
		}
	}
	side := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(x[limbs*n+at:])) }
	p := fma.FMA(fma.FMA(float32(sums[0]), 256, float32(sums[1])), 256, float32(sums[2]))
	return p * side(0), side(4)
}
