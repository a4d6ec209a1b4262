package fma_test

import (
	"math"
	"testing"

	"lector/engine/cpu/fma"
)

// Packed rows give the chains of plain Go, whatever is ragged, at once and in two parts.
func TestProductAgrees(t *testing.T) {
	src := newSource(8)
	for _, inputs := range inputs(0, 1, 4, 7, 33, 130) {
		for rows := 1; rows <= 19; rows++ {
			for _, columns := range []int{1, 5, 16, 17, 31, 32} {
				productOnce(t, src, rows, columns, inputs)
			}
		}
	}
}

func productOnce(t *testing.T, src source, rows, columns, inputs int) {
	t.Helper()
	ldc, ldx, from := columns+src.IntN(5), inputs+7, src.IntN(7)
	x, panel, begin := src.floats(rows*ldx), src.floats((inputs+1)*fma.Lanes), src.floats(rows*ldc)
	for _, first := range []bool{true, false} {
		want := append([]float32(nil), begin...)
		for r := range rows {
			for j := range columns {
				sum := begin[r*ldc+j]
				if first {
					sum = 0
				}
				for i := range inputs {
					sum = fma.FMA(x[r*ldx+from+i], panel[i*fma.Lanes+j], sum)
				}
				want[r*ldc+j] = sum
			}
		}
		for _, set := range fma.Sets() {
			for _, cut := range []int{inputs, inputs / 2} {
				got, c := append([]float32(nil), begin...), fma.Rows{Step: ldc}
				c.Data = got
				var p fma.Packed
				row := func(i int) []float32 { return x[i*ldx : (i+1)*ldx] }
				set.Pack(&p, rows, from, cut, row)
				set.Product(c, &p, panel, columns, first)
				set.Pack(&p, rows, from+cut, inputs-cut, row)
				set.Product(c, &p, panel[cut*fma.Lanes:], columns, false)
				if i := differs(got, want); i >= 0 {
					t.Fatalf("%s, %d rows, %d columns, %d inputs, cut at %d, first %v: element %d is %x, want %x", set, rows, columns, inputs, cut, first, i, math.Float32bits(got[i]), math.Float32bits(want[i]))
				}
			}
		}
	}
}

func BenchmarkProduct(b *testing.B) {
	src, set := newSource(9), fma.Widest()
	const rows, inputs = 256, 1024
	x, c, panel := plain(src, rows*inputs), make([]float32, rows*2048), plain(src, (inputs+16)*fma.Lanes)
	var p fma.Packed
	row := func(i int) []float32 { return x[i*inputs:] }
	b.Run("pack", func(b *testing.B) {
		seconds := best(b, func() { set.Pack(&p, rows, 0, inputs, row) })
		b.ReportMetric(8e-9*rows*inputs/seconds, "GB/s")
	})
	set.Pack(&p, rows, 0, inputs, row)
	b.Run("product", func(b *testing.B) {
		seconds := best(b, func() { set.Product(fma.Rows{Data: c, Step: 2048}, &p, panel, fma.Lanes, true) })
		b.ReportMetric(2e-9*rows*inputs*fma.Lanes/seconds, "GFLOP/s")
	})
}
