package gpu_test

import (
	"fmt"
	"slices"
	"testing"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/shaders"
)

func TestMeanBlocks(t *testing.T) {
	b := open(t, gpu.Options{})
	raw := newSource(4).normal(50*24, 1)
	for _, c := range [][3]int{{1, 0, 4}, {5, 2, 7}, {12, 0, 4}} { // blocks, first, ratio
		compare(t, b, 1e-6, func(b ops.Backend) []ops.Tensor {
			y := blank(t, b, c[0], 24)
			b.MeanBlocks(y, put(t, b, raw, 24), c[1], c[2])
			return []ops.Tensor{y}
		})
	}
}

// selectCase is rows that choose blocks.
type selectCase struct {
	name                     string
	h                        ops.Heads
	cols                     int
	rows, pos, ratio, budget int
	iq, bk                   []float32
}

func (c selectCase) blocks() int { return (c.pos + c.rows) / c.ratio }

func newSelectCase(h ops.Heads, rows, pos, ratio, budget int) selectCase {
	c := selectCase{fmt.Sprint(h, rows, pos, ratio, budget), h, h.From + h.N*h.Stride, rows, pos, ratio, budget, nil, nil}
	src := newSource(uint64(rows + pos))
	c.iq, c.bk = src.normal(rows*c.cols, 1), src.normal(max(c.blocks(), 1)*h.Dim, 1)
	return c
}

// choose selects the blocks of rows [from, to) on b.
func (c selectCase) choose(t *testing.T, b ops.Backend, from, to int) ops.Index {
	iq, bk := put(t, b, c.iq, c.cols), put(t, b, c.bk, c.h.Dim)
	index := b.SelectBlocks(iq.Slice(from, to), c.h, bk, c.pos+from, c.ratio, c.budget)
	wait(t, b)
	return index
}

func TestSelectBlocks(t *testing.T) {
	small, real := ops.Heads{From: 4, N: 2, Stride: 40, Dim: 32}, ops.Heads{N: 4, Stride: 128, Dim: 128}
	cases := []selectCase{
		newSelectCase(small, 1, 0, 4, 8), newSelectCase(small, 40, 0, 4, 8),
		newSelectCase(small, 3, 34, 4, 8),  // the first row that is scored
		newSelectCase(small, 33, 31, 4, 8), // the last that sees all, and ragged tiles
		newSelectCase(small, 5, 1000, 8, 6), newSelectCase(small, 9, 50, 1, 7), newSelectCase(small, 5, 90, 4, 0),
		newSelectCase(real, 2, 9000, 4, 512), newSelectCase(real, 35, 300, 4, 32),
	}
	flat := newSelectCase(small, 6, 200, 4, 8) // every score is 0
	flat.name = "all equal"
	for i := range flat.iq {
		flat.iq[i] = 0
	}
	few := newSelectCase(small, 6, 200, 4, 20) // blocks in runs of equal scores
	few.name = "runs of equals"
	for j := range few.blocks() {
		copy(few.bk[j*32:(j+1)*32], few.bk[j/7*7*32:])
	}
	for _, b := range []*gpu.Backend{open(t, gpu.Options{}), open(t, gpu.Options{Float32: true})} {
		for _, c := range append(cases, flat, few) {
			t.Run(b.Class()+" "+c.name, func(t *testing.T) {
				want, got := c.choose(t, cpu.New(cpu.Options{}), 0, c.rows), c.choose(t, b, 0, c.rows)
				for r := range c.rows {
					if !slices.Equal(got.Blocks(r), want.Blocks(r)) {
						t.Fatalf("row %d sees %v, want %v", r, got.Blocks(r), want.Blocks(r))
					}
				}
			})
		}
	}
}

// attendCase is rows that attend to what they chose.
type attendCase struct {
	selectCase
	d        ops.AttentionDims
	qg, k, v []float32
}

func newAttendCase(d ops.AttentionDims, rows, pos, ratio, budget int) attendCase {
	c := attendCase{selectCase: newSelectCase(ops.Heads{N: 2, Stride: 32, Dim: 32}, rows, pos, ratio, budget), d: d}
	src := newSource(uint64(pos + rows + d.Hd))
	c.qg = src.normal(rows*d.Hq*2*d.Hd, 1)
	c.k, c.v = src.normal((pos+rows)*d.Hkv*d.Hd, 1), src.normal((pos+rows)*d.Hkv*d.Hd, 1)
	return c
}

func (c attendCase) run(t *testing.T, b ops.Backend, cuts []int) []ops.Tensor {
	iq, bk := put(t, b, c.iq, c.cols), put(t, b, c.bk, c.h.Dim)
	qg, k, v := put(t, b, c.qg, 2*c.d.Hq*c.d.Hd), put(t, b, c.k, c.d.Hkv*c.d.Hd), put(t, b, c.v, c.d.Hkv*c.d.Hd)
	o := blank(t, b, c.rows, c.d.Hq*c.d.Hd)
	for i := range len(cuts) - 1 {
		from, to := cuts[i], cuts[i+1]
		index := b.SelectBlocks(iq.Slice(from, to), c.h, bk, c.pos+from, c.ratio, c.budget)
		b.Attend(o.Slice(from, to), qg.Slice(from, to), ops.CacheOf(k, c.d.Hkv), ops.CacheOf(v, c.d.Hkv), index, c.pos+from, c.ratio, c.d)
	}
	return []ops.Tensor{o}
}

// attendCases are few rows, then as many as the forms for more take.
func attendCases() []attendCase {
	cases := attendCasesOf(0)
	return append(append(cases, attendCasesOf(shaders.VectorRows)...), newAttendCase(ops.AttentionDims{Hq: 4, Hkv: 2, Hd: 32}, 37, 0, 4, 8)) // all of a short context
}

func attendCasesOf(more int) []attendCase {
	return []attendCase{
		newAttendCase(ops.AttentionDims{Hq: 1, Hkv: 1, Hd: 32}, 1+more, 0, 4, 8),
		newAttendCase(ops.AttentionDims{Hq: 6, Hkv: 2, Hd: 64}, 9+more, 60, 8, 6),   // masked
		newAttendCase(ops.AttentionDims{Hq: 5, Hkv: 1, Hd: 40}, 6+more, 33, 4, 5),   // dims that are no power of two
		newAttendCase(ops.AttentionDims{Hq: 24, Hkv: 2, Hd: 256}, 5+more, 70, 4, 8), // the released heads
		newAttendCase(ops.AttentionDims{Hq: 20, Hkv: 1, Hd: 128}, 3+more, 66, 4, 4), // more heads than one tile of the gathered form
		newAttendCase(ops.AttentionDims{Hq: 2, Hkv: 1, Hd: 32}, 3+more, 96, 32, 0),  // the tail alone
	}
}

func TestAttend(t *testing.T) {
	for _, form := range []struct {
		near int
		o    gpu.Options
		tol  float64
	}{{0, gpu.Options{}, 3e-3}, {1, gpu.Options{}, 3e-3}, {1 << 20, gpu.Options{Float32: true}, 3e-6}, {1, gpu.Options{Float32: true}, 3e-6}} {
		b := open(t, form.o)
		b.SetNear(form.near)
		for _, c := range attendCases() {
			t.Run(fmt.Sprint(b.Class(), form.near, c.d, c.name), func(t *testing.T) {
				compare(t, b, form.tol, func(b ops.Backend) []ops.Tensor { return c.run(t, b, []int{0, c.rows}) })
			})
		}
	}
}

// Rows on both sides of where the gathered form begins.
func TestAttendFar(t *testing.T) {
	c := newAttendCase(ops.AttentionDims{Hq: 12, Hkv: 1, Hd: 32}, 36, 8174, 4, 64)
	b := open(t, gpu.Options{})
	compare(t, b, 3e-3, func(b ops.Backend) []ops.Tensor { return c.run(t, b, []int{0, c.rows}) })
	sameBitsCut(t, b, [][]int{{0, 36}, {0, 17, 36}, {0, 19, 36}}, func(b ops.Backend, cuts []int) []ops.Tensor { return c.run(t, b, cuts) })
}

func TestAttendRowsAlone(t *testing.T) {
	c := newAttendCase(ops.AttentionDims{Hq: 6, Hkv: 2, Hd: 64}, 14, 40, 4, 8)
	for _, near := range []int{0, 48} {
		b := open(t, gpu.Options{})
		b.SetNear(near)
		sameBits(t, b, c.rows, func(b ops.Backend, cuts []int) []ops.Tensor { return c.run(t, b, cuts) })
		c := newAttendCase(ops.AttentionDims{Hq: 6, Hkv: 2, Hd: 64}, 40, 20, 4, 8)
		sameBitsCut(t, b, [][]int{{0, 40}, {0, 17, 40}, {0, 22, 40}}, func(b ops.Backend, cuts []int) []ops.Tensor { return c.run(t, b, cuts) })
	}
}

// An index is good until the next choice.
func TestLateIndex(t *testing.T) {
	b := open(t, gpu.Options{})
	c := newSelectCase(ops.Heads{N: 2, Stride: 32, Dim: 32}, 3, 100, 4, 8)
	first := c.choose(t, b, 0, c.rows)
	c.choose(t, b, 0, c.rows)
	defer func() {
		if recover() == nil {
			t.Error("blocks of a choice are read after the next one")
		}
	}()
	first.Blocks(0)
}
