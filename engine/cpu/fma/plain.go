package fma

import "math"

// FMA is x*y + z rounded once to float32, on any processor.
//
// The product of two float32 is exact in float64. Rounding its sum with z first to float64 and then to float32 would
// round twice; so the float64 sum is rounded to odd, which keeps what the second rounding has to know: 53 bits are more
// than 24 + 2.
func FMA(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	t := s - p
	lost := (p - (s - t)) + (c - t) // exact: s + lost = p + c
	if lost != 0 && lost == lost {
		if bits := math.Float64bits(s); bits&1 == 0 {
			if (lost > 0) == (s > 0) {
				bits++
			} else {
				bits--
			}
			s = math.Float64frombits(bits)
		}
	}
	return float32(s)
}

// dotsPlain is Dots in Go, for any number of columns.
func dotsPlain(c, x Rows, panel []float32, t Tile) {
	for r := range t.Rows {
		for j := range t.Columns {
			sum := float32(0)
			if !t.First {
				sum = c.Data[r*c.Step+j]
			}
			at := j / Lanes * t.Next
			for i, v := range x.Data[r*x.Step : r*x.Step+t.Inputs] {
				sum = FMA(v, panel[at+i*t.Step+j%Lanes], sum)
			}
			c.Data[r*c.Step+j] = sum
		}
	}
}
