package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// inPlace is the case of an operation that changes rows of cols in place, each row by itself.
func inPlace(name string, x []float32, cols int, tol float64, op func(b *cpu.Backend, x ops.Tensor, first int), ref func(row []float64, r int)) opCase {
	want := wide(x)
	for r := range len(x) / cols {
		ref(want[r*cols:(r+1)*cols], r)
	}
	return opCase{name, len(x) / cols, func(b *cpu.Backend, cuts []int) []float32 {
		t := put(b, x, cols)
		chunks(cuts, func(from, to int) { op(b, t.Slice(from, to), from) })
		return t.Floats()
	}, want, tol}
}

func refNorm(x []float64, scale []float32, eps float64) {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	r := 1 / math.Sqrt(sum/float64(len(x))+eps)
	for i := range x {
		x[i] *= r * float64(scale[i%len(scale)])
	}
}

func TestRMSNorm(t *testing.T) {
	src := newSource(10)
	for _, s := range []struct{ rows, cols, group, scale int }{
		{1, 64, 64, 64}, {5, 256, 64, 256}, {3, 256, 64, 64}, {3, 60, 20, 5}, {7, 12, 12, 12}, {2, 10240, 2560, 10240},
	} {
		x, scale := src.normal(s.rows*s.cols, 3), src.normal(s.scale, 1)
		ref := func(row []float64, _ int) {
			for g := 0; g < s.cols; g += s.group {
				refNorm(row[g:g+s.group], scale[g%s.scale:][:min(s.group, s.scale)], 1e-6)
			}
		}
		check(t, inPlace(fmt.Sprint("in place", s), x, s.cols, 2e-6, func(b *cpu.Backend, x ops.Tensor, _ int) {
			b.RMSNorm(x, x, scale, s.group, 1e-6)
		}, ref))
	}
	b := cpu.New(cpu.Options{})
	x, y := put(b, make([]float32, 8), 8), put(b, src.normal(8, 1), 8)
	b.RMSNorm(y, x, src.normal(8, 1), 8, 1e-6)
	for _, v := range y.Floats() {
		if v != 0 {
			t.Errorf("norm of zeros is %g", v)
		}
	}
}

func TestHeads(t *testing.T) {
	src := newSource(11)
	for _, s := range []struct {
		rows, cols int
		h          ops.Heads
	}{
		{1, 64, ops.Heads{N: 1, Stride: 64, Dim: 64}},
		{5, 600, ops.Heads{From: 7, N: 2, Stride: 256, Dim: 128}},
		{3, 45, ops.Heads{From: 1, N: 4, Stride: 11, Dim: 10}},
	} {
		x, scale := src.normal(s.rows*s.cols, 2), src.normal(s.h.Dim, 1)
		heads := func(row []float64, f func(head []float64)) {
			for i := range s.h.N {
				f(row[s.h.From+i*s.h.Stride:][:s.h.Dim])
			}
		}
		check(t, inPlace(fmt.Sprint("norm", s), x, s.cols, 2e-6, func(b *cpu.Backend, x ops.Tensor, _ int) {
			b.RMSNormHeads(x, s.h, scale, 1e-6)
		}, func(row []float64, _ int) {
			heads(row, func(head []float64) { refNorm(head, scale, 1e-6) })
		}))
		check(t, inPlace(fmt.Sprint("unit", s), x, s.cols, 2e-6, func(b *cpu.Backend, x ops.Tensor, _ int) {
			b.UnitHeads(x, s.h, 0.25)
		}, func(row []float64, _ int) {
			heads(row, func(head []float64) {
				sum := 1e-6
				for _, v := range head {
					sum += v * v
				}
				for i := range head {
					head[i] *= 0.25 / math.Sqrt(sum)
				}
			})
		}))
		rope := ops.Rope{Rot: s.h.Dim / 4 * 2, Theta: 1e7}
		for _, at := range [][2]int{{0, 1}, {200_000, 1}, {8, 4}} {
			check(t, inPlace(fmt.Sprint("rope", at, s), x, s.cols, 2e-6, func(b *cpu.Backend, x ops.Tensor, first int) {
				b.Rope(x, s.h, rope, at[0]+first*at[1], at[1])
			}, func(row []float64, r int) {
				heads(row, func(head []float64) { refRope(head, rope, float64(at[0]+r*at[1])) })
			}))
		}
	}
}

func refRope(head []float64, rope ops.Rope, pos float64) {
	half := rope.Rot / 2
	for i := range half {
		sin, cos := math.Sincos(pos * math.Pow(rope.Theta, -2*float64(i)/float64(rope.Rot)))
		a, b := head[i], head[i+half]
		head[i], head[i+half] = a*cos-b*sin, b*cos+a*sin
	}
}

func TestElementwise(t *testing.T) {
	src := newSource(12)
	for _, s := range [][2]int{{1, 1}, {3, 5}, {7, 320}, {4, 4099}} {
		rows, cols := s[0], s[1]
		x, y, gate := src.normal(rows*cols, 4), src.normal(rows*cols, 2), src.normal(rows, 3)
		each := func(f func(v float64, i int) float64) func([]float64, int) {
			return func(row []float64, r int) {
				for c := range row {
					row[c] = f(row[c], r*cols+c)
				}
			}
		}
		check(t, inPlace(fmt.Sprint("silu", s), x, cols, 2e-6, func(b *cpu.Backend, x ops.Tensor, _ int) { b.SiLU(x, 0.25) },
			each(func(v float64, _ int) float64 { return refSiLU(v * 0.25) })))
		check(t, inPlace(fmt.Sprint("sigmoid", s), x, cols, 1e-6, func(b *cpu.Backend, x ops.Tensor, _ int) { b.Sigmoid(x, 0.25, 2) },
			each(func(v float64, _ int) float64 { return 2 * refSigmoid(v*0.25) })))
		check(t, inPlace(fmt.Sprint("swiglu", s), x, cols, 4e-6, func(b *cpu.Backend, x ops.Tensor, first int) {
			b.SwiGLU(x, x, put(b, y, cols).Slice(first, first+x.Rows))
		}, each(func(v float64, i int) float64 { return refSiLU(v) * float64(y[i]) })))
		check(t, inPlace(fmt.Sprint("add", s), x, cols, 1e-6, func(b *cpu.Backend, x ops.Tensor, first int) {
			b.Add(x, put(b, y, cols).Slice(first, first+x.Rows))
		}, each(func(v float64, i int) float64 { return v + float64(y[i]) })))
		check(t, inPlace(fmt.Sprint("gated", s), x, cols, 2e-6, func(b *cpu.Backend, x ops.Tensor, first int) {
			b.AddGated(x, put(b, y, cols).Slice(first, first+x.Rows), put(b, gate, 1).Slice(first, first+x.Rows))
		}, each(func(v float64, i int) float64 { return v + refSigmoid(float64(gate[i/cols]))*float64(y[i]) })))
	}
}

func TestStreams(t *testing.T) {
	src := newSource(13)
	for _, s := range [][3]int{{1, 2, 3}, {5, 4, 64}, {3, 3, 1300}} {
		rows, n, h := s[0], s[1], s[2]
		x, w, z, inj := src.normal(rows*h, 1), src.normal(rows*n*h, 1), src.normal(rows*n*h, 1), src.normal(rows*n, 1)
		cut := func(b *cpu.Backend, v []float32, cols, first, rows int) ops.Tensor {
			return put(b, v, cols).Slice(first, first+rows)
		}
		stream := func(f func(v float64, r, g, c int) float64) func([]float64, int) {
			return func(row []float64, r int) {
				for i := range row {
					row[i] = f(row[i], r, i/h, i%h)
				}
			}
		}
		check(t, inPlace(fmt.Sprint("replicate", s), w, n*h, 0, func(b *cpu.Backend, w ops.Tensor, first int) {
			b.Replicate(w, cut(b, x, h, first, w.Rows))
		}, stream(func(_ float64, r, _, c int) float64 { return float64(x[r*h+c]) })))
		check(t, inPlace(fmt.Sprint("add", s), w, n*h, 1e-6, func(b *cpu.Backend, w ops.Tensor, first int) {
			b.AddToStreams(w, cut(b, x, h, first, w.Rows))
		}, stream(func(v float64, r, _, c int) float64 { return v + float64(x[r*h+c]) })))
		check(t, inPlace(fmt.Sprint("inject", s), w, n*h, 1e-6, func(b *cpu.Backend, w ops.Tensor, first int) {
			b.Inject(w, cut(b, x, h, first, w.Rows), cut(b, inj, n, first, w.Rows))
		}, stream(func(v float64, r, g, c int) float64 { return v + float64(inj[r*n+g])*float64(x[r*h+c]) })))
		check(t, inPlace(fmt.Sprint("mix", s), x, h, 1e-6, func(b *cpu.Backend, x ops.Tensor, first int) {
			b.MixStreams(x, cut(b, w, n*h, first, x.Rows), cut(b, z, n*h, first, x.Rows))
		}, func(row []float64, r int) {
			for c := range row {
				row[c] = 0
				for g := range n {
					i := (r*n+g)*h + c
					row[c] += float64(w[i]) * float64(z[i]) / float64(n)
				}
			}
		}))
		key, query := src.normal(rows*n*h, 1), src.normal(rows*n*h, 1)
		check(t, inPlace(fmt.Sprint("ple gate", s), key, n*h, 1e-6, func(b *cpu.Backend, k ops.Tensor, first int) {
			b.PLEGate(k, k, cut(b, query, n*h, first, k.Rows), cut(b, x, h, first, k.Rows))
		}, func(row []float64, r int) {
			for g := range n {
				s := 0.0
				for c := range h {
					s += row[g*h+c] * float64(query[(r*n+g)*h+c]) / math.Sqrt(float64(h))
				}
				for c := range h {
					row[g*h+c] = refSigmoid(math.Copysign(math.Sqrt(max(math.Abs(s), 1e-6)), s)) * float64(x[r*h+c])
				}
			}
		}))
	}
}

func TestPLEGateAtZeroAndBelowTheFloor(t *testing.T) {
	b := cpu.New(cpu.Options{})
	key, query, val := put(b, []float32{0, 1e-7, -1e-7}, 3), put(b, []float32{1, 1, 1}, 3), put(b, []float32{1}, 1)
	b.PLEGate(key, key, query, val)
	for i, want := range []float64{0.5, refSigmoid(1e-3), refSigmoid(-1e-3)} {
		if got := float64(key.Floats()[i]); math.Abs(got-want) > 1e-7 {
			t.Errorf("stream %d: gate %g, want %g", i, got, want)
		}
	}
}

func TestConvAndTail(t *testing.T) {
	src := newSource(14)
	for _, s := range []struct{ rows, c, taps, dilation int }{{1, 3, 4, 1}, {2, 5, 4, 1}, {9, 7, 4, 3}, {30, 12, 4, 3}, {5, 4, 2, 2}, {3, 4, 1, 1}} {
		for _, activate := range []bool{false, true} {
			span := (s.taps - 1) * s.dilation
			history := src.normal((span+s.rows)*s.c, 1) // the tail, then x
			w := src.normal(s.c*s.taps, 1)
			var want []float64
			for r := range s.rows {
				for c := range s.c {
					sum := 0.0
					for j := range s.taps {
						sum += float64(w[c*s.taps+j]) * float64(history[(span+r-(s.taps-1-j)*s.dilation)*s.c+c])
					}
					if activate {
						sum = refSiLU(sum)
					}
					want = append(want, sum)
				}
			}
			want = append(want, wide(history[s.rows*s.c:])...) // and the tail it leaves
			check(t, opCase{fmt.Sprint(s, activate), s.rows, func(b *cpu.Backend, cuts []int) []float32 {
				tail, err := b.Alloc(span, s.c)
				if err != nil {
					t.Fatal(err)
				}
				copy(tail.Floats(), history)
				x, y := put(b, history[span*s.c:], s.c), put(b, make([]float32, s.rows*s.c), s.c)
				chunks(cuts, func(from, to int) {
					b.Conv(y.Slice(from, to), x.Slice(from, to), tail, w, s.dilation, activate)
					b.ShiftTail(tail, x.Slice(from, to))
				})
				return append(append([]float32(nil), y.Floats()...), tail.Floats()...)
			}, want, 3e-6})
		}
	}
}

func TestCopyRows(t *testing.T) {
	b := cpu.New(cpu.Options{Workers: 3})
	src := put(b, []float32{1, 2, 3, 4, 5, 6, 7, 8}, 4)
	dst := put(b, make([]float32, 8), 2)
	b.CopyRows(dst, 1, src, 1)
	want := []float32{0, 0, 2, 3, 6, 7, 0, 0}
	if i := differs(want, dst.Floats()); i >= 0 {
		t.Errorf("got %v, want %v", dst.Floats(), want)
	}
}
