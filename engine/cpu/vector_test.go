package cpu_test

import (
	"math"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
	"lector/tests/generated"
)

// Elementwise operations give the same bits with every set of kernels, also where a number is huge, tiny, infinite
// or none, and where the length leaves a ragged end.
func TestKernelsAgreeOnOddNumbers(t *testing.T) {
	odd := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 87.2, -87.2, -87.3, -87.31, 88.7, 89, -120, 1e-30, -1e-42, 3e38, -3e38,
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	src := newSource(77)
	for _, n := range []int{1, 15, 16, 17, 64, 83} {
		x := append(src.normal(max(n-len(odd), 0), 30), odd[:min(n, len(odd))]...)
		for name, run := range map[string]func(b *cpu.Backend, y ops.Tensor){
			"Sigmoid": func(b *cpu.Backend, y ops.Tensor) { b.Sigmoid(y, 0.25, 2) },
			"SiLU":    func(b *cpu.Backend, y ops.Tensor) { b.SiLU(y, 0.5) },
			"SwiGLU":  func(b *cpu.Backend, y ops.Tensor) { b.SwiGLU(y, y, put(b, x, n)) },
		} {
			var want []float32
			for v := range cpu.Widest() + 1 {
				b := cpu.Narrow(cpu.New(cpu.Options{}), v)
				y := put(b, x, n)
				run(b, y)
				got := append([]float32(nil), y.Floats()...)
				if v == 0 {
					want = got
				}
				for i := range want {
					same := math.Float32bits(got[i]) == math.Float32bits(want[i]) || got[i] != got[i] && want[i] != want[i]
					if !same {
						t.Errorf("%s of %v (%d of %d) with kernel set %d: %x, plain %x", name, x[i], i, n, v, math.Float32bits(got[i]), math.Float32bits(want[i]))
					}
				}
			}
		}
	}
}

// The assembly in the repository is what the generator writes.
func TestKernelsAreGenerated(t *testing.T) { generated.Kernels(t, "cpu", "engine/cpu") }
