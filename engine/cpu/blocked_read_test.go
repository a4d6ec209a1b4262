package cpu_test

import (
	"fmt"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// A read in one operation gives the bits of the single operations, however it is cut, with and without an injection.
func TestReadStreamsIsTheSingleOperations(t *testing.T) {
	src := newSource(91)
	for _, s := range []struct{ rows, n, h, low int }{{9, 4, 160, 33}, {70, 2, 64, 16}, {1, 3, 40, 8}, {4, 4, 160, 70}, {130, 4, 32, 32}} {
		for _, inject := range []bool{true, false} {
			wide := s.n * s.h
			down, up := plainMatrix(src, s.low, wide, ops.BF16), plainMatrix(src, wide, s.low, ops.BF16)
			if wide%64 == 0 {
				down = affineMatrix(src, s.low, wide, 4, 64, ops.BF16)
			}
			gate := plainMatrix(src, s.n, wide, ops.F32)
			norm, w, y, inj := src.normal(wide, 1), src.normal(s.rows*wide, 1), src.normal(s.rows*s.h, 1), src.normal(s.rows*s.n, 1)
			for _, workers := range []int{1, 3} {
				b := cpu.New(cpu.Options{Class: cpu.Blocked, Workers: workers})
				r := ops.StreamRead{X: put(b, garbage(s.rows*s.h), s.h), Wide: put(b, w, wide), Y: put(b, y, s.h), Inj: put(b, inj, s.n), Norm: norm, Eps: 1e-6, Down: down.Matrix, Up: up.Matrix}
				x, wd, in := put(b, garbage(s.rows*s.h), s.h), put(b, w, wide), put(b, inj, s.n)
				b.Inject(wd, put(b, y, s.h), in)
				z, u, low := put(b, w, wide), put(b, w, wide), put(b, make([]float32, s.rows*s.low), s.low)
				b.RMSNorm(z, wd, norm, s.h, 1e-6)
				b.Linear(low, z, down.Matrix)
				b.SiLU(low, 1/float32(s.n))
				b.Linear(u, low, up.Matrix)
				b.Sigmoid(u, 1, 1)
				b.MixStreams(x, u, z)
				if inject {
					r.Inject = gate.Matrix
					b.Linear(in, z, gate.Matrix)
					b.Sigmoid(in, 1/float32(s.n), 2)
				}
				b.ReadStreams(r)
				for name, pair := range map[string][2]ops.Tensor{"x": {r.X, x}, "wide": {r.Wide, wd}, "inj": {r.Inj, in}} {
					if i := differs(pair[0].Floats(), pair[1].Floats()); i >= 0 {
						t.Errorf("%s, inject %v, %d workers: %s[%d] is %g, want %g", fmt.Sprint(s), inject, workers, name, i, pair[0].Floats()[i], pair[1].Floats()[i])
					}
				}
			}
		}
	}
}
