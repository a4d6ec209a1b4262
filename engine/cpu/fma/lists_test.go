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
	for _, set := range fma.Sets() {
		if set.Lists() { // the others read none
			listedAgree(t, set)
		}
	}
}

func listedAgree(t *testing.T, set fma.Set) {
	t.Helper()
	src := newSource(11)
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
				t.Fatalf("%s, %d rows: element %d of row %d differs", set, n, i, j)
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
					t.Fatalf("%s, %+v: element %d is %x, want %x", set, tile, i, math.Float32bits(c[i]), math.Float32bits(want[i]))
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

// Every set transposes rows as plain Go does, also where they are shorter than what a kernel takes at a time.
func TestTransposeAgrees(t *testing.T) {
	src := newSource(12)
	for _, k := range inputs(1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 70, 129) {
		for _, n := range []int{1, 15, 16, 17, 31, 32} {
			step := k + src.IntN(5)
			rows, want := fma.Rows{Data: src.floats((n-1)*step + k), Step: step}, make([]float32, (k+16)*fma.Lanes)
			fma.Plain.Transpose(want, rows, n, k)
			for _, set := range fma.Sets() {
				got := make([]float32, len(want))
				set.Transpose(got, rows, n, k)
				for i := range k {
					if j := differs(got[i*fma.Lanes:][:n], want[i*fma.Lanes:][:n]); j >= 0 {
						t.Fatalf("%s, %d rows of %d: element %d of row %d differs", set, n, k, i, j)
					}
				}
			}
		}
	}
}
