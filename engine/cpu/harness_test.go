package cpu_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// opCase is one operation on one shape. run applies it to the rows of its input chunk by chunk, chunk i being
// rows [cuts[i], cuts[i+1]), on a fresh copy of everything, and returns all it wrote, state included. want is the
// same in float64.
type opCase struct {
	name string
	rows int
	run  func(b *cpu.Backend, cuts []int) []float32
	want []float64
	tol  float64 // of the error, relative to the larger of 1 and the root mean square of want
}

// check compares an operation with its reference, and demands the same bits of every cut into chunks, of every
// number of workers and of every set of kernels that this processor has; all that in every class.
func check(t *testing.T, c opCase) {
	t.Helper()
	for _, class := range cpu.Classes() {
		checkClass(t, c, class)
	}
}

func checkClass(t *testing.T, c opCase, class string) {
	t.Helper()
	t.Run(c.name+"/"+class, func(t *testing.T) {
		t.Helper()
		whole := []int{0, c.rows}
		got := c.run(cpu.New(cpu.Options{Class: class, Workers: 1}), whole)
		if err := worst(got, c.want); !(err <= c.tol) {
			t.Errorf("error %.2e against float64, want at most %.0e", err, c.tol)
		}
		single := make([]int, c.rows+1)
		for i := range single {
			single[i] = i
		}
		for _, workers := range []int{1, 2, 5} {
			for _, cuts := range [][]int{whole, single, ragged(c.rows)} {
				again := c.run(cpu.New(cpu.Options{Class: class, Workers: workers}), cuts)
				if i := differs(got, again); i >= 0 {
					t.Fatalf("%d workers, cuts %v: element %d is %x, want %x", workers, cuts, i,
						math.Float32bits(again[i]), math.Float32bits(got[i]))
				}
			}
		}
		for v := range cpu.Widest() {
			again := c.run(cpu.Narrow(cpu.New(cpu.Options{Class: class}), v), whole)
			if i := differs(got, again); i >= 0 {
				t.Fatalf("kernel set %d: element %d is %x, want %x", v, i, math.Float32bits(again[i]), math.Float32bits(got[i]))
			}
		}
	})
}

// ragged cuts n rows into runs of 1, 2, 3, ...
func ragged(n int) []int {
	cuts, at := []int{0}, 0
	for i := 1; at < n; i++ {
		at = min(n, at+i)
		cuts = append(cuts, at)
	}
	return cuts
}

func worst(got []float32, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	rms, err := 0.0, 0.0
	for i, w := range want {
		rms += w * w / float64(len(want))
		d := math.Abs(float64(got[i]) - w)
		if !(d <= err) {
			err = d
		}
	}
	return err / max(1, math.Sqrt(rms))
}

// differs returns the first element whose bits differ, or -1.
func differs(a, b []float32) int {
	for i := range a {
		if i >= len(b) || math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	if len(a) != len(b) {
		return len(a)
	}
	return -1
}

// source gives reproducible inputs.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 7))} }

// normal is n values of a nearly normal distribution times scale: sums of uniform ones, without a library's logarithm
// or a product that a compiler could fuse, so that every target tests with the same bits.
func (s source) normal(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		sum := s.Float64() + s.Float64() + s.Float64() + s.Float64() - 2
		v[i] = float32(sum * scale * 1.75)
	}
	return v
}

// put allocates rows x cols holding a copy of v.
func put(b *cpu.Backend, v []float32, cols int) ops.Tensor {
	if len(v)%cols != 0 {
		panic("test data is not whole rows")
	}
	t, err := b.Alloc(len(v)/cols, cols)
	if err != nil {
		panic(err)
	}
	copy(t.Floats(), v)
	return t
}

// garbage is what an output holds before it is written: an operation that adds to it, or skips a part, shows.
func garbage(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return v
}

func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

// chunks calls f for every chunk.
func chunks(cuts []int, f func(from, to int)) {
	for i := range len(cuts) - 1 {
		f(cuts[i], cuts[i+1])
	}
}

func refSigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
func refSiLU(x float64) float64    { return x * refSigmoid(x) }

func wait(t *testing.T, b ops.Backend) {
	t.Helper()
	if err := b.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
}
