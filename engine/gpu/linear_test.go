package gpu_test

import (
	"fmt"
	"math"
	"testing"

	"lector/engine/gpu"
	"lector/engine/ops"
)

// product is y = x Wᵀ with its error bound for every element.
type product struct {
	want  []float64 // in float64 [rows, out]
	bound []float64
}

// half says what an operand's rounding to half may be off: 11 significant bits, or a step of 2^-24 near zero.
func halfError(v float64) float64 { return max(math.Abs(v)*0x1p-11, 0x1p-25) }

// productOf derives the bound. Every path adds up float32: at most In+8 roundings of 2^-24 each, of sums and products
// no larger than |x| times the largest weight of the row, which also covers scale*code + bias. With half staging both
// operands are off by halfError before that.
func productOf(t *testing.T, x []float32, m ops.Matrix, half bool) product {
	t.Helper()
	w := values(t, m)
	rows := len(x) / m.In
	p := product{make([]float64, rows*m.Out), make([]float64, rows*m.Out)}
	for o := range m.Out {
		row, largest := w[o*m.In:(o+1)*m.In], 0.0
		for _, v := range row {
			largest = max(largest, math.Abs(float64(v)))
		}
		for r := range rows {
			sum, bound := 0.0, 0.0
			for i, v := range row {
				a, b := float64(x[r*m.In+i]), float64(v)
				sum += a * b
				bound += math.Abs(a) * largest * float64(m.In+8) * 0x1p-24
				if half {
					bound += math.Abs(b)*halfError(a) + math.Abs(a)*halfError(b) + halfError(a)*halfError(b)
				}
			}
			p.want[r*m.Out+o], p.bound[r*m.Out+o] = sum, bound
		}
	}
	return p
}

// checkLinear runs Linear and holds every element to its bound.
func checkLinear(t *testing.T, b *gpu.Backend, x []float32, m ops.Matrix) {
	t.Helper()
	rows := len(x) / m.In
	half := b.Class() == "metal-h1" && rows > 16
	want := productOf(t, x, m, half)
	in, y := put(t, b, x, m.In), blank(t, b, rows, m.Out)
	b.Linear(y, in, m)
	wait(t, b)
	used := 0.0
	for i, v := range y.Floats() {
		d := math.Abs(float64(v) - want.want[i])
		if !(d <= want.bound[i]) {
			t.Fatalf("row %d, output %d: %g, want %g within %.1e", i/m.Out, i%m.Out, v, want.want[i], want.bound[i])
		}
		used = max(used, d/want.bound[i])
	}
	if half && used < 1e-3 {
		t.Errorf("error is %.1e of the bound: this was not staged in half", used)
	}
	checkFence(t, y)
	b.Free(in)
	b.Free(y)
}

func modes(t *testing.T, run func(t *testing.T, b *gpu.Backend)) {
	t.Helper()
	for _, float := range []bool{false, true} {
		t.Run(fmt.Sprint("float32=", float), func(t *testing.T) { run(t, open(t, gpu.Options{Float32: float})) })
	}
}

func TestLinearShapes(t *testing.T) {
	modes(t, func(t *testing.T, b *gpu.Backend) {
		src := newSource(20)
		for _, s := range []struct{ rows, out, in int }{
			{1, 1, 1}, {1, 5, 7}, {3, 3, 66}, {4, 9, 300}, {5, 8, 32}, {7, 33, 130}, {16, 4, 64}, {17, 1, 5}, {17, 130, 33}, {33, 40, 256}, {40, 128, 64}, {64, 31, 40},
		} {
			for _, f := range []ops.Format{ops.F32, ops.BF16, ops.F16} {
				t.Run(fmt.Sprint(s, f), func(t *testing.T) {
					checkLinear(t, b, src.normal(s.rows*s.in, 1), plain(src, s.out, s.in, f))
				})
			}
		}
	})
}

func TestLinearAffine(t *testing.T) {
	modes(t, func(t *testing.T, b *gpu.Backend) {
		src := newSource(21)
		for _, bits := range []int{2, 3, 4, 6, 8} {
			for _, group := range []int{32, 64, 128} {
				for _, side := range []ops.Format{ops.F32, ops.BF16, ops.F16} {
					m := affine(src, 37, 128, bits, group, side)
					t.Run(m.Name, func(t *testing.T) {
						checkLinear(t, b, src.normal(3*m.In, 1), m)
						checkLinear(t, b, src.normal(19*m.In, 1), m)
					})
				}
			}
		}
	})
}

// A hidden row of the released model, through a slice of a projection.
func TestLinearRealWidth(t *testing.T) {
	modes(t, func(t *testing.T, b *gpu.Backend) {
		src := newSource(22)
		m := affine(src, 48, 2560, 4, 64, ops.BF16)
		checkLinear(t, b, src.normal(4*m.In, 1), m)
		checkLinear(t, b, src.normal(18*m.In, 1), m)
	})
}

// A row's bits do not depend on what the rows beside it hold, nor, on either side of the number of rows where the
// kernel changes, on how many there are.
func TestLinearRowsAreIndependent(t *testing.T) {
	modes(t, func(t *testing.T, b *gpu.Backend) {
		src := newSource(23)
		m := affine(src, 20, 96, 4, 32, ops.BF16)
		row := src.normal(m.In, 1)
		run := func(rows, at int) []float32 {
			x := src.normal(rows*m.In, 3)
			for i := range x {
				if i%3 == 0 {
					x[i] = float32(math.NaN())
				}
			}
			copy(x[at*m.In:], row)
			in, y := put(t, b, x, m.In), blank(t, b, rows, m.Out)
			b.Linear(y, in, m)
			wait(t, b)
			defer b.Free(in)
			defer b.Free(y)
			return append([]float32(nil), y.Row(at)...)
		}
		for _, cases := range [][][2]int{{{1, 0}, {2, 1}, {3, 0}, {4, 3}, {5, 4}, {11, 7}, {16, 15}}, {{17, 0}, {17, 16}, {33, 32}, {40, 9}, {64, 63}}} {
			want := run(cases[0][0], cases[0][1])
			for _, c := range cases[1:] {
				if i := differs(want, run(c[0], c[1])); i >= 0 {
					t.Errorf("row %d of %d: output %d differs from row %d of %d", c[1], c[0], i, cases[0][1], cases[0][0])
				}
			}
		}
	})
}

func TestLinearPropagatesNaNInItsRowAlone(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(24)
	for _, rows := range []int{2, 20} {
		m := plain(src, 4, 40, ops.F32)
		x := make([]float32, rows*m.In)
		x[m.In+3] = float32(math.NaN())
		y := blank(t, b, rows, m.Out)
		b.Linear(y, put(t, b, x, m.In), m)
		wait(t, b)
		for i, v := range y.Floats() {
			if nan := v != v; nan != (i/m.Out == 1) || !nan && math.Float32bits(v) != 0 {
				t.Errorf("%d rows: row %d, output %d is %g", rows, i/m.Out, i%m.Out, v)
			}
		}
	}
}
