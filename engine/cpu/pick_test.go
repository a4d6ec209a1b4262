package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"lector/engine/cpu"
)

// The largest of the columns that may be chosen, the lower of equals, and no choice in a row with one that is no number, wherever it stands.
func TestPick(t *testing.T) {
	src := newSource(103)
	for _, cols := range []int{1, 5, 1024, 1025, 3000} {
		for _, n := range []int{1, (cols + 1) / 2, cols} {
			x := src.normal(3*cols, 1)
			x[n-1], x[n/2] = 9, 9 // of row 0
			x[cols] = 20          // of row 1
			x[2*cols-1] = float32(math.NaN())
			for i := range cols { // row 2: below zero, and the largest is not to be chosen
				x[2*cols+i] = -1 - float32(i%7)
			}
			if n < cols {
				x[3*cols-1] = 5
			}
			few(func(b *cpu.Backend) {
				got := b.Pick(put(b, x, cols), n)
				said := ""
				for r := range 3 {
					column, finite := got.Row(r)
					said += fmt.Sprint(column, finite, " ")
				}
				if want := fmt.Sprint(n/2, true, " ", 0, false, " ", 0, true, " "); said != want {
					t.Errorf("%d of %d columns: %s, want %s", n, cols, said, want)
				}
			})
		}
	}
}
