package gpu_test

import (
	"fmt"
	"testing"

	"lector/engine/gpu"
	"lector/engine/ops"
)

// Norms and activations are float32 on both sides; the reference adds up in float64, the kernels in float32 over 32 or
// more partial sums, and the device's exp, division and rsqrt are within a few ulp.
const floatBound = 1e-5

func TestEmbed(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(1)
	all := []ops.Matrix{plain(src, 9, 67, ops.F32), plain(src, 9, 67, ops.BF16), plain(src, 9, 5, ops.F16)}
	for _, bits := range []int{2, 3, 4, 6, 8} {
		all = append(all, affine(src, 9, 128, bits, 64, ops.BF16))
	}
	all = append(all, affine(src, 9, 128, 3, 32, ops.F16), affine(src, 9, 128, 6, 128, ops.F32))
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			against(t, b, 1e-6, func(t *testing.T, b backend) []ops.Tensor {
				y := blank(t, b, 5, m.In)
				b.Embed(y, m, []int32{8, 0, 3, 3, 7})
				return []ops.Tensor{y}
			})
		})
	}
}

func TestNorms(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(2)
	for _, s := range []struct{ rows, cols, group, scale int }{
		{1, 64, 64, 64}, {5, 256, 64, 256}, {3, 60, 20, 5}, {7, 12, 12, 12}, {3, 1200, 600, 1200}, {2, 10240, 2560, 10240}, {33, 72, 24, 72},
	} {
		x, scale := src.normal(s.rows*s.cols, 3), src.normal(s.scale, 1)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			against(t, b, floatBound, func(t *testing.T, b backend) []ops.Tensor {
				in, y := put(t, b, x, s.cols), blank(t, b, s.rows, s.cols)
				b.RMSNorm(y, in, scale, s.group, 1e-6)
				b.RMSNorm(in, in, scale, s.group, 1e-6)
				return []ops.Tensor{y, in}
			})
		})
	}
}

func TestHeads(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(3)
	for _, s := range []struct {
		rows, cols int
		h          ops.Heads
	}{
		{1, 64, ops.Heads{N: 1, Stride: 64, Dim: 64}},
		{5, 600, ops.Heads{From: 7, N: 2, Stride: 256, Dim: 128}},
		{3, 45, ops.Heads{From: 1, N: 4, Stride: 11, Dim: 10}},
		{7, 1024, ops.Heads{N: 2, Stride: 512, Dim: 256}},
		{33, 40, ops.Heads{From: 8, N: 4, Stride: 8, Dim: 8}},
	} {
		x, scale := src.normal(s.rows*s.cols, 2), src.normal(s.h.Dim, 1)
		t.Run(fmt.Sprint("norm", s), func(t *testing.T) {
			against(t, b, floatBound, func(t *testing.T, b backend) []ops.Tensor {
				y := put(t, b, x, s.cols)
				b.RMSNormHeads(y, s.h, scale, 1e-6)
				return []ops.Tensor{y}
			})
		})
		rope := ops.Rope{Rot: s.h.Dim / 4 * 2, Theta: 1e7}
		for _, at := range [][2]int{{0, 1}, {200_000, 1}, {1<<18 - 40, 1}, {8, 4}} {
			t.Run(fmt.Sprint("rope", at, s), func(t *testing.T) {
				against(t, b, 1e-6, func(t *testing.T, b backend) []ops.Tensor {
					y := put(t, b, x, s.cols)
					b.Rope(y, s.h, rope, at[0], at[1])
					b.Rope(y.Slice(0, 1), s.h, rope, at[0], at[1]) // the kept table serves fewer rows as well
					return []ops.Tensor{y}
				})
			})
		}
	}
}

func TestElements(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(4)
	for _, s := range [][2]int{{1, 1}, {3, 5}, {5, 64}, {7, 320}, {33, 33}} {
		rows, cols := s[0], s[1]
		x, y, gate := src.normal(rows*cols, 4), src.normal(rows*cols, 2), src.normal(rows, 3)
		x[0] = -200 // e^200 overflows
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			against(t, b, floatBound, func(t *testing.T, b backend) []ops.Tensor {
				one := func() ops.Tensor { return put(t, b, x, cols) }
				two, g := put(t, b, y, cols), put(t, b, gate, 1)
				silu, sigmoid, swiglu, glu, add, gated := one(), one(), one(), blank(t, b, rows, cols), one(), one()
				b.SiLU(silu, 0.25)
				b.Sigmoid(sigmoid, 0.25, 2)
				b.SwiGLU(swiglu, swiglu, two)
				b.SwiGLU(glu, silu, two)
				b.Add(add, two)
				b.AddGated(gated, two, g)
				return []ops.Tensor{silu, sigmoid, swiglu, glu, add, gated}
			})
		})
	}
}

func TestCopyRows(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(5)
	x, y := src.normal(7*40, 1), src.normal(9*13, 1)
	against(t, b, 0, func(t *testing.T, b backend) []ops.Tensor {
		dst := put(t, b, y, 13)
		b.CopyRows(dst, 2, put(t, b, x, 40), 21)
		return []ops.Tensor{dst}
	})
}

func TestConvAndTail(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(6)
	for _, s := range []struct{ rows, c, taps, dilation int }{
		{1, 3, 4, 1}, {2, 5, 4, 1}, {9, 7, 4, 3}, {33, 300, 4, 1}, {5, 4, 2, 2}, {3, 4, 1, 1},
	} {
		span := (s.taps - 1) * s.dilation
		history, x, w := src.normal(max(1, span)*s.c, 1)[:span*s.c], src.normal(s.rows*s.c, 1), src.normal(s.c*s.taps, 1)
		for _, activate := range []bool{false, true} {
			t.Run(fmt.Sprint(s, activate), func(t *testing.T) {
				against(t, b, floatBound, func(t *testing.T, b backend) []ops.Tensor {
					tail, in, y := put(t, b, history, s.c), put(t, b, x, s.c), blank(t, b, s.rows, s.c)
					b.Conv(y, in, tail, w, s.dilation, activate)
					b.ShiftTail(tail, in)
					return []ops.Tensor{y, tail}
				})
			})
		}
	}
}

// Two chunks give what one gives, bit for bit: the tail carries over.
func TestConvCutsExactly(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(7)
	const rows, c, dilation = 11, 6, 3
	x, w := src.normal(rows*c, 1), src.normal(c*4, 1)
	run := func(cut int) []float32 {
		tail, in, y := put(t, b, make([]float32, 9*c), c), put(t, b, x, c), blank(t, b, rows, c)
		for _, part := range [][2]int{{0, cut}, {cut, rows}} {
			b.Conv(y.Slice(part[0], part[1]), in.Slice(part[0], part[1]), tail, w, dilation, true)
			b.ShiftTail(tail, in.Slice(part[0], part[1]))
		}
		wait(t, b)
		return append(append([]float32(nil), y.Floats()...), tail.Floats()...)
	}
	whole := run(0)
	for cut := 1; cut < rows; cut++ {
		if i := differs(whole, run(cut)); i >= 0 {
			t.Errorf("cut at %d: element %d differs", cut, i)
		}
	}
}

func TestStreams(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(8)
	for _, s := range [][3]int{{1, 2, 3}, {5, 4, 64}, {3, 3, 300}, {33, 4, 20}} {
		rows, n, h := s[0], s[1], s[2]
		x, w, u, inj := src.normal(rows*h, 1), src.normal(rows*n*h, 1), src.normal(rows*n*h, 1), src.normal(rows*n, 1)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			against(t, b, 1e-6, func(t *testing.T, b backend) []ops.Tensor {
				in, gain := put(t, b, x, h), put(t, b, inj, n)
				replicated, added, injected := blank(t, b, rows, n*h), put(t, b, w, n*h), put(t, b, w, n*h)
				mixed := blank(t, b, rows, h)
				b.Replicate(replicated, in)
				b.AddToStreams(added, in)
				b.Inject(injected, in, gain)
				b.MixStreams(mixed, put(t, b, u, n*h), put(t, b, w, n*h))
				return []ops.Tensor{replicated, added, injected, mixed}
			})
		})
	}
}
