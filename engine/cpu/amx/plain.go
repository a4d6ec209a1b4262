package amx

import (
	"math"

	"lector/engine/cpu/fma"
)

// splitPlain is split in Go: the parts of up to 16 rows, and the sums of their groups.
func splitPlain(to []uint16, sums []float32, rows [][]float32, c cut) {
	group := c.steps * step
	for r, row := range rows {
		for i, v := range row {
			tile := to[i/step*parts*size+r*step+i%step:]
			for part := range parts {
				upper := math.Float32bits(v) &^ 0xffff
				tile[part*size] = uint16(upper >> 16)
				v -= math.Float32frombits(upper)
			}
		}
		for g := range c.groups {
			sums[g*Rows+r] = sumLanes(row[g*group:][:group])
		}
	}
}

func sumLanes(x []float32) float32 {
	var lane [16]float32
	for i, v := range x {
		lane[i%16] += v
	}
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			lane[i] += lane[i+n]
		}
	}
	return lane[0]
}

// pairPlain is pair in Go.
func pairPlain(to []uint16, panel []float32, steps int) {
	for i := range steps * step {
		for j := range Outputs {
			at := i/step*both + j/high*size + i%step/2*step + j%high*2 + i%2
			to[at] = uint16(math.Float32bits(panel[i*Outputs+j]) >> 16)
		}
	}
}

// centerPlain is center in Go.
func centerPlain(sides []float32, groups int, middle float32) {
	for g := range groups {
		scales, biases := sides[2*g*Outputs:][:Outputs], sides[(2*g+1)*Outputs:][:Outputs]
		for j, scale := range scales {
			biases[j] += float32(scale * middle) // exact: a power of two
		}
	}
}

// blockPlain is multiply32 in Go.
func blockPlain(y []float32, x *Packed, w *Panel, first int) {
	for r := range min(Rows, x.n-first) {
		row := x.parts[(first+r)/high*x.all()*parts*size+r%high*step:]
		for j := range Outputs {
			acc := &y[r*Outputs+j]
			for g := range x.groups {
				at := g * x.steps
				sum := groupSum(row[at*parts*size:], w.pairs[at*both+j/high*size+j%high*2:], x.steps)
				*acc = fma.FMA(w.sides[2*g*Outputs+j], sum, *acc)
				*acc = fma.FMA(w.sides[(2*g+1)*Outputs+j], x.sums[first*x.groups+g*Rows+r], *acc)
			}
		}
	}
}

// groupSum is the sum of products of n steps of a row of tiles with an output of panels.
func groupSum(row, output []uint16, n int) float32 {
	var sum float32
	for s := range n {
		weights := output[s*both:]
		for part := range parts {
			x := row[(s*parts+part)*size:]
			var even, odd float32
			for k := range step / 2 {
				even = flush(fma.FMA(widen(x[2*k]), widen(weights[k*step]), even))
				odd = flush(fma.FMA(widen(x[2*k+1]), widen(weights[k*step+1]), odd))
			}
			sum = flush(sum + flush(even+odd))
		}
	}
	return sum
}

// widen is a bf16 as tiles see it.
func widen(b uint16) float32 { return flush(math.Float32frombits(uint32(b) << 16)) }

// flush makes a subnormal zero, of the same sign.
func flush(v float32) float32 {
	if bits := math.Float32bits(v); bits&0x7f800000 == 0 {
		return math.Float32frombits(bits & 0x80000000)
	}
	return v
}
