package gpu_test

import (
	"fmt"
	"math"
	"testing"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
)

// compare runs operations on the CPU and on the device and compares what they return. tol is the largest error relative
// to the larger of 1 and the root mean square of the reference.
func compare(t *testing.T, b *gpu.Backend, tol float64, run func(b ops.Backend) []ops.Tensor) {
	t.Helper()
	c := cpu.New(cpu.Options{Workers: 1})
	want, got := run(c), run(b)
	wait(t, b)
	for i := range want {
		if err := worst(got[i].Floats(), want[i].Floats()); !(err <= tol) {
			t.Errorf("result %d: error %.2e, want at most %.0e", i, err, tol)
		}
		checkFence(t, got[i])
		b.Free(got[i])
	}
}

// sameBits demands that an operation over rows [0, n) gives the same bits however they are cut into chunks.
func sameBits(t *testing.T, b *gpu.Backend, n int, run func(b ops.Backend, cuts []int) []ops.Tensor) {
	t.Helper()
	sameBitsCut(t, b, [][]int{{0, n}, every(n, 1), every(n, 3)}, run)
}

// sameBitsCut compares every cut with the first.
func sameBitsCut(t *testing.T, b *gpu.Backend, all [][]int, run func(b ops.Backend, cuts []int) []ops.Tensor) {
	t.Helper()
	var want []ops.Tensor
	for i, cuts := range all {
		got := run(b, cuts)
		wait(t, b)
		if i == 0 {
			want = got
			continue
		}
		for j := range want {
			if at := differs(want[j].Floats(), got[j].Floats()); at >= 0 {
				t.Errorf("cuts %v: element %d of result %d is %g, uncut %g", cuts, at, j, got[j].Floats()[at], want[j].Floats()[at])
			}
		}
	}
}

// every cuts n rows into chunks of `each`.
func every(n, each int) []int {
	cuts := []int{0}
	for at := 0; at < n; {
		at = min(at+each, n)
		cuts = append(cuts, at)
	}
	return cuts
}

func TestUnitHeads(t *testing.T) {
	b := open(t, gpu.Options{})
	for _, h := range []ops.Heads{{From: 0, N: 1, Stride: 8, Dim: 8}, {From: 5, N: 3, Stride: 40, Dim: 33}, {From: 0, N: 2, Stride: 128, Dim: 128}} {
		for _, rows := range []int{1, 7} {
			x := newSource(1).normal(rows*300, 1)
			clear(x[h.From : h.From+h.Dim]) // a key of zeros stays finite
			compare(t, b, 1e-6, func(b ops.Backend) []ops.Tensor {
				y := put(t, b, x, 300)
				b.UnitHeads(y, h, 0.25)
				return []ops.Tensor{y}
			})
		}
	}
}

func TestDeltaGates(t *testing.T) {
	b := open(t, gpu.Options{})
	src := newSource(2)
	for _, d := range [][2]int{{1, 1}, {5, 48}, {130, 6}} {
		n := d[0] * d[1]
		a, bb, aLog, bias := src.normal(n, 20), src.normal(n, 20), src.normal(d[1], 2), src.normal(d[1], 2)
		compare(t, b, 2e-6, func(b ops.Backend) []ops.Tensor {
			x, y := put(t, b, a, d[1]), put(t, b, bb, d[1])
			g, beta := blank(t, b, d[0], d[1]), blank(t, b, d[0], d[1])
			b.DeltaGates(g, beta, x, y, aLog, bias)
			b.DeltaGates(x, y, x, y, aLog, bias) // in place
			return []ops.Tensor{g, beta, x, y}
		})
	}
}

// deltaCase is inputs of a scan.
type deltaCase struct {
	ops.DeltaDims
	rows                 int
	qkv, g, beta, before []float32
}

func newDeltaCase(d ops.DeltaDims, rows int) deltaCase {
	src := newSource(uint64(rows))
	c := deltaCase{
		DeltaDims: d, rows: rows, qkv: src.normal(rows*(2*d.Hk*d.Dk+d.Hv*d.Dv), 1),
		g: make([]float32, rows*d.Hv), beta: make([]float32, rows*d.Hv), before: src.normal(d.Hv*d.Dk*d.Dv, 0.3),
	}
	for i := range c.g {
		c.g[i], c.beta[i] = float32(0.5+src.Float64()/2), float32(src.Float64())
	}
	scale := float32(1 / math.Sqrt(float64(d.Dk)))
	width := len(c.qkv) / rows
	for r := range rows {
		for i := range 2 * d.Hk * d.Dk {
			c.qkv[r*width+i] *= scale
		}
	}
	return c
}

// run scans the rows in chunks: outputs and the state after them.
func (c deltaCase) run(t *testing.T, b ops.Backend, cuts []int) []ops.Tensor {
	qkv, g, beta := put(t, b, c.qkv, len(c.qkv)/c.rows), put(t, b, c.g, c.Hv), put(t, b, c.beta, c.Hv)
	o, s := blank(t, b, c.rows, c.Hv*c.Dv), put(t, b, c.before, c.Dk*c.Dv)
	for i := range len(cuts) - 1 {
		from, to := cuts[i], cuts[i+1]
		b.DeltaScan(o.Slice(from, to), qkv.Slice(from, to), g.Slice(from, to), beta.Slice(from, to), s, c.DeltaDims)
	}
	return []ops.Tensor{o, s}
}

func TestDeltaScan(t *testing.T) {
	b := open(t, gpu.Options{})
	for _, c := range []deltaCase{
		newDeltaCase(ops.DeltaDims{Hk: 1, Hv: 1, Dk: 32, Dv: 32}, 1),
		newDeltaCase(ops.DeltaDims{Hk: 2, Hv: 6, Dk: 32, Dv: 64}, 13),
		newDeltaCase(ops.DeltaDims{Hk: 2, Hv: 4, Dk: 48, Dv: 40}, 8),
		newDeltaCase(ops.DeltaDims{Hk: 1, Hv: 3, Dk: 128, Dv: 128}, 17),
		newDeltaCase(ops.DeltaDims{Hk: 1, Hv: 1, Dk: 200, Dv: 5}, 9),
	} {
		t.Run(fmt.Sprint(c.DeltaDims, c.rows), func(t *testing.T) {
			compare(t, b, 2e-6, func(b ops.Backend) []ops.Tensor { return c.run(t, b, []int{0, c.rows}) })
		})
	}
	c := newDeltaCase(ops.DeltaDims{Hk: 1, Hv: 2, Dk: 64, Dv: 48}, 11)
	sameBits(t, b, c.rows, func(b ops.Backend, cuts []int) []ops.Tensor { return c.run(t, b, cuts) })
}

// Where a text repeats itself keys are nearly equal and beta is near 1: a form of the scan that inverts by powers blows
// up there.
func TestDeltaScanOfEqualKeys(t *testing.T) {
	b := open(t, gpu.Options{})
	c := newDeltaCase(ops.DeltaDims{Hk: 1, Hv: 2, Dk: 64, Dv: 32}, 100)
	width := len(c.qkv) / c.rows
	for r := range c.rows {
		copy(c.qkv[r*width+c.Dk:][:c.Dk], c.qkv[c.Dk:][:c.Dk])
	}
	for i := range c.g {
		c.g[i], c.beta[i] = 0.9999, 0.9995
	}
	compare(t, b, 1e-5, func(b ops.Backend) []ops.Tensor {
		qkv := put(t, b, c.qkv, width)
		b.UnitHeads(qkv, ops.Heads{N: 2, Stride: c.Dk, Dim: c.Dk}, 1)
		o, s := blank(t, b, c.rows, c.Hv*c.Dv), put(t, b, c.before, c.Dk*c.Dv)
		b.DeltaScan(o, qkv, put(t, b, c.g, c.Hv), put(t, b, c.beta, c.Hv), s, c.DeltaDims)
		return []ops.Tensor{o, s}
	})
}

func TestGatedNorm(t *testing.T) {
	b := open(t, gpu.Options{})
	src := newSource(3)
	for _, d := range [][3]int{{1, 1, 32}, {6, 3, 40}, {3, 2, 128}} { // rows, heads, dims
		o, z, w := src.normal(d[0]*d[1]*d[2], 1), src.normal(d[0]*d[1]*d[2], 3), src.normal(d[2], 1)
		for _, silu := range []bool{false, true} {
			compare(t, b, 2e-6, func(b ops.Backend) []ops.Tensor {
				y := put(t, b, o, d[1]*d[2])
				b.GatedNorm(y, put(t, b, z, d[1]*d[2]), w, 1e-6, silu)
				return []ops.Tensor{y}
			})
		}
	}
}
