package fma_test

import (
	"math"
	"testing"

	"lector/engine/cpu/fma"
)

// list is n numbers of rows below most, with what may stand behind them.
func (s source) list(n, most int) []int32 {
	v := make([]int32, n+fma.ListAhead)
	for i := range v {
		v[i] = int32(s.IntN(most))
	}
	return v
}

// Listed rows give what the same rows give side by side, for every number of rows and columns.
func TestListedRowsAgree(t *testing.T) {
	set, src := fma.Widest(), newSource(11)
	if !set.Lists() {
		return // the others read no lists
	}
	const rows, k, step = 90, 112, 120
	data := src.floats((rows-1)*step + k)
	for n := 1; n <= 32; n++ {
		list := src.list(n, rows)
		panel, want := make([]float32, fma.PanelFloats), make([]float32, fma.PanelFloats)
		set.TransposeListed(panel, fma.Listed{Data: data, Step: step, List: list}, n, k)
		near := make([]float32, n*k)
		for i, row := range list[:n] {
			copy(near[i*k:(i+1)*k], data[int(row)*step:])
		}
		fma.Plain.Transpose(want, fma.Rows{Data: near, Step: k}, n, k)
		for i := range k {
			if j := differs(panel[i*fma.Lanes:][:n], want[i*fma.Lanes:][:n]); j >= 0 {
				t.Fatalf("%d rows: element %d of row %d differs", n, i, j)
			}
		}
		for pairs := 1; pairs <= 9; pairs++ {
			for _, columns := range []int{16, 48, 112} {
				x, c := src.floats(pairs*40), src.floats(pairs*k)
				tile := fma.Tile{Rows: pairs, Columns: columns, Inputs: n, First: src.IntN(2) == 0}
				want := append([]float32(nil), c...)
				tileNear := tile
				tileNear.Step, tileNear.Next = k, fma.Lanes
				fma.Plain.Dots(fma.Rows{Data: want, Step: k}, fma.Rows{Data: x, Step: 40}, near, tileNear)
				set.DotsListed(fma.Rows{Data: c, Step: k}, fma.Rows{Data: x, Step: 40}, fma.Listed{Data: data, Step: step, List: list}, tile)
				if i := differs(c, want); i >= 0 {
					t.Fatalf("%+v: element %d is %x, want %x", tile, i, math.Float32bits(c[i]), math.Float32bits(want[i]))
				}
			}
		}
	}
}

// A list that names a row outside of the data is refused before a kernel reads it.
func TestListedRowsAreChecked(t *testing.T) {
	if !fma.Widest().Lists() {
		return // the others read no lists
	}
	for _, row := range []int32{-1, 3} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("row %d of 3 was read", row)
				}
			}()
			list := make([]int32, 1+fma.ListAhead)
			list[0] = row
			fma.Widest().DotsListed(fma.Rows{Data: make([]float32, 16), Step: 16}, fma.Rows{Data: make([]float32, 1), Step: 1}, fma.Listed{Data: make([]float32, 48), Step: 16, List: list},
				fma.Tile{Rows: 1, Columns: 16, Inputs: 1})
		}()
	}
}
