package fma_test

import (
	"bytes"
	"math"
	"testing"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// tiledOf is a copy of m in tiles of `across` outputs, made where its bytes lie.
func tiledOf(set fma.Set, m ops.Matrix, across int) ops.Matrix {
	m.Data, m.Scales, m.Biases = bytes.Clone(m.Data), bytes.Clone(m.Scales), bytes.Clone(m.Biases)
	set.Arrange(&m, across, &fma.Temp{})
	return m
}

// Tiles hold the same weights: element by element, in panels of every set, and in Few.
func TestTilesAgree(t *testing.T) {
	src := newSource(8)
	for _, set := range fma.Sets()[1:] {
		for _, in := range inputs(64, 192, 1152) {
			for _, m := range []ops.Matrix{
				src.matrix(ops.Affine, 80, in, 2, 32, ops.BF16), src.matrix(ops.Affine, 80, in, 3, 32, ops.F32), src.matrix(ops.Affine, 80, in, 4, 32, ops.F16),
				src.matrix(ops.Affine, 80, in, 4, 64, ops.BF16), src.matrix(ops.Affine, 80, in, 6, 32, ops.F32), src.matrix(ops.Affine, 80, in, 8, 64, ops.BF16),
				src.matrix(ops.Affine, 128, in, 4, 64, ops.BF16), src.matrix(ops.Affine, 192, in, 6, 64, ops.BF16), src.matrix(ops.Affine, 128, in, 8, 32, ops.BF16),
			} {
				if !set.SuitsTiles(&m) {
					t.Fatalf("%s does not tile %d bits in groups of %d", set, m.Bits, m.Group)
				}
				for _, across := range []int{16, 64} {
					if across == 16 || across == set.Across(&m) {
						tilesAgree(t, src, set, m, across)
					}
				}
			}
		}
	}
}

func tilesAgree(t *testing.T, src source, set fma.Set, m ops.Matrix, across int) {
	t.Helper()
	tiles := tiledOf(set, m, across)
	sameWeights(t, m, tiles)
	k := fma.Inputs(&m, 256)
	for _, p := range []fma.Part{{Row: 0, N: 32, K: min(k, m.In)}, {Row: 48, N: 32, From: m.In / k * k / 2 / m.Group * m.Group, K: m.Group}, {Row: 64, N: 7, K: m.Group}, {Row: 21, N: 20, K: m.Group}} {
		unpacked(t, tiles, p)
	}
	if !set.SuitsFew(&m) {
		return
	}
	for rows := 1; rows <= fma.FewRows; rows++ {
		for _, n := range []int{1, 16, 33, 64} {
			fewOnce(t, src, set, tiles, fma.Part{Row: 16, N: n, K: m.In}, rows)
		}
		if across == fma.FewOutputs {
			tilesAtOnce(t, src, set, tiles, rows)
		}
	}
}

// tilesAtOnce holds FewTiles to Few, tile by tile, and to the columns that it may write.
func tilesAtOnce(t *testing.T, src source, set fma.Set, m ops.Matrix, rows int) {
	t.Helper()
	first, n := fma.FewOutputs, m.Out-fma.FewOutputs
	x, c, tile := fma.Rows{Data: src.floats(rows * m.In), Step: m.In}, make([]float32, rows*(n+3)), make([]float32, rows*fma.FewOutputs)
	set.FewTiles(fma.Rows{Data: c, Step: n + 3}, x, rows, fma.Outputs{Matrix: &m, Row: first, N: n, Then: &m, ThenRow: m.Out})
	for o := 0; o < n; o += fma.FewOutputs {
		set.Few(fma.Rows{Data: tile, Step: fma.FewOutputs}, x, rows, fma.Outputs{Matrix: &m, Row: first + o, N: fma.FewOutputs}, &fma.Temp{})
		for r := range rows {
			got, want := c[r*(n+3)+o:][:fma.FewOutputs], tile[r*fma.FewOutputs:][:fma.FewOutputs]
			if i := differs(got, want); i >= 0 {
				t.Fatalf("%s, %d bits, %d rows: row %d, output %d is %v, by itself %v", set, m.Bits, rows, r, first+o+i, got[i], want[i])
			}
		}
	}
	for r := range rows {
		for i, v := range c[r*(n+3)+n:][:3] {
			if v != 0 {
				t.Fatalf("%s, %d bits, %d rows: column %d behind the outputs of row %d is written: %v", set, m.Bits, rows, i, r, v)
			}
		}
	}
}

func sameWeights(t *testing.T, m, tiles ops.Matrix) {
	t.Helper()
	want, got := make([]float32, m.In), make([]float32, m.In)
	for r := range m.Out {
		fma.Decode(want, &m, r)
		fma.Decode(got, &tiles, r)
		if i := differs(got, want); i >= 0 {
			t.Fatalf("%d bits in groups of %d: output %d, input %d is %x in tiles, else %x", m.Bits, m.Group, r, i, math.Float32bits(got[i]), math.Float32bits(want[i]))
		}
	}
}

// Tiles of bf16 hold the same weights, and Few multiplies with them as Dots does.
func TestTilesOfUpperHalvesAgree(t *testing.T) {
	src := newSource(10)
	for _, in := range inputs(1, 64, 193) {
		for _, out := range []int{1, 16, 70, 128} {
			m := src.matrix(ops.BF16, out, in, 0, 0, 0)
			for _, set := range fma.Sets() {
				tiles := set.Tile(&m, 16, make([]byte, fma.TileBytes(&m)))
				sameWeights(t, m, *tiles)
				if !set.SuitsUpper(&m) {
					continue
				}
				for rows := 1; rows <= fma.FewRows; rows++ {
					for _, p := range []fma.Part{{N: min(out, 64), K: in}, {N: min(out, 40), K: in}, {Row: (out - 1) / 16 * 16, N: out - (out-1)/16*16, K: in}} {
						fewOnce(t, src, set, *tiles, p, rows)
					}
				}
			}
		}
	}
}

// A copy in tiles fills a ragged end up with outputs that are zero, and takes the memory that it says.
func TestTileFillsUp(t *testing.T) {
	src := newSource(9)
	for _, set := range fma.Sets()[1:] {
		for _, out := range []int{1, 4, 16, 57, 70} {
			m := src.matrix(ops.Affine, out, 192, 4, 64, ops.BF16)
			across := 16
			if out == 57 {
				across = 64
			}
			memory := make([]byte, fma.TileBytes(&m)+1)
			memory[len(memory)-1] = 7
			tiles := set.Tile(&m, across, memory)
			sameWeights(t, m, *tiles)
			row := make([]float32, m.In)
			for r := out; r < tiles.Out; r++ {
				fma.Decode(row, tiles, r)
				if i := differs(row, make([]float32, m.In)); i >= 0 {
					t.Fatalf("output %d of %d, input %d is %v, want nothing", r, out, i, row[i])
				}
			}
			if memory[len(memory)-1] != 7 {
				t.Fatalf("%d outputs take more than %d bytes", out, fma.TileBytes(&m))
			}
		}
	}
}
