package gpu_test

import (
	"testing"

	"lector/engine/gpu"
	"lector/engine/ops"
)

// A step of DeltaNet gives the bits of the single operations, and moves state and tail on as they do.
func TestStepDeltaIsTheSingleOperations(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(102)
	for i, d := range []ops.DeltaDims{{Hk: 1, Hv: 1, Dk: 30, Dv: 8}, {Hk: 2, Hv: 6, Dk: 40, Dv: 64}, {Hk: 3, Hv: 3, Dk: 128, Dv: 128}, {Hk: 1, Hv: 2, Dk: 32, Dv: 5}} {
		for _, rows := range []int{1, 2, 6} {
			const taps = 4
			c, v, silu := 2*d.Hk*d.Dk+d.Hv*d.Dv, d.Hv*d.Dv, i%2 == 0
			raw, tail, z, a, bb, s := src.normal(rows*c, 1), src.normal((taps-1)*c, 1), src.normal(rows*v, 1), src.normal(rows*d.Hv, 1), src.normal(rows*d.Hv, 1), src.normal(d.Hv*d.Dk*d.Dv, 0.3)
			conv, aLog, dt, norm := src.normal(c*taps, 1), src.normal(d.Hv, 1), src.normal(d.Hv, 1), src.normal(d.Dv, 1)
			fresh := func() ops.DeltaStep {
				return ops.DeltaStep{
					O: blank(t, b, rows, v), QKV: blank(t, b, rows, c), Raw: put(t, b, raw, c), Tail: put(t, b, tail, c), Z: put(t, b, z, v), A: put(t, b, a, d.Hv), B: put(t, b, bb, d.Hv),
					S: put(t, b, s, d.Dk*d.Dv), OldS: blank(t, b, d.Hv, d.Dk*d.Dv), OldTail: blank(t, b, taps-1, c), Dims: d, Conv: conv, ALog: aLog, DtBias: dt, Norm: norm, QueryScale: 0.25, Eps: 1e-6, SiLU: silu,
				}
			}
			got, w := fresh(), fresh()
			if exchanged := b.StepDelta(got); exchanged {
				got.S, got.OldS, got.Tail, got.OldTail = got.OldS, got.S, got.OldTail, got.Tail
			} else if d.Dv%8 == 0 {
				t.Errorf("%+v is not done in one dispatch", d)
			}
			b.Conv(w.QKV, w.Raw, w.Tail, conv, 1, true)
			b.UnitHeads(w.QKV, ops.Heads{N: d.Hk, Stride: d.Dk, Dim: d.Dk}, 0.25)
			b.UnitHeads(w.QKV, ops.Heads{From: d.Hk * d.Dk, N: d.Hk, Stride: d.Dk, Dim: d.Dk}, 1)
			b.DeltaGates(w.A, w.B, w.A, w.B, aLog, dt)
			b.DeltaScan(w.O, w.QKV, w.A, w.B, w.S, d)
			b.ShiftTail(w.Tail, w.Raw)
			b.GatedNorm(w.O, w.Z, norm, 1e-6, silu)
			wait(t, b)
			for name, pair := range map[string][2]ops.Tensor{"o": {got.O, w.O}, "qkv": {got.QKV, w.QKV}, "g": {got.A, w.A}, "beta": {got.B, w.B}, "state": {got.S, w.S}, "tail": {got.Tail, w.Tail},
				"old state": {got.OldS, put(t, b, s, d.Dk*d.Dv)}, "old tail": {got.OldTail, put(t, b, tail, c)}} {
				if i := differs(pair[0].Floats(), pair[1].Floats()); i >= 0 {
					t.Errorf("%+v, %d rows: %s[%d] is %g, want %g", d, rows, name, i, pair[0].Floats()[i], pair[1].Floats()[i])
				}
				checkFence(t, pair[0])
			}
		}
	}
}

// The shared expert goes with the others where they are at hand, and gives the bits that it gives by itself.
func TestSharedExpertOfFewRows(t *testing.T) {
	for name, form := range map[string]func(src source, out, in int) ops.Matrix{"alike": quantised(4), "another": bf16} {
		c, src := newExpertCase("mapped", 3, 64, 64, 6, 3, 5, quantised(4)), newSource(7)
		memory := mapRecords(t, &c)
		s := ops.SharedExpert{GateBy: form(src, 64, 64), UpBy: form(src, 64, 64), Down: form(src, 64, 64)}
		score := src.normal(3, 1)
		run := func(t *testing.T, b ops.Backend) []ops.Tensor {
			x, y := put(t, b, c.x, 64), blank(t, b, 3, 64)
			route := b.Route(put(t, b, c.logits, 6), c.k, true)
			s := s
			s.Score, s.Gate, s.Up = put(t, b, score, 1), blank(t, b, 3, 64), blank(t, b, 3, 64)
			if few := b.(ops.FewRows); few.SharesInside() {
				few.RunShared(y, x, c.experts(), route, s)
				return []ops.Tensor{y}
			}
			out := blank(t, b, 3, 64)
			b.RunExperts(y, x, c.experts(), route)
			b.Linear(s.Gate, x, s.GateBy)
			b.Linear(s.Up, x, s.UpBy)
			b.SwiGLU(s.Gate, s.Gate, s.Up)
			b.Linear(out, s.Gate, s.Down)
			b.AddGated(y, out, s.Score)
			return []ops.Tensor{y}
		}
		t.Run(name, func(t *testing.T) {
			b, apart := open(t, gpu.Options{Mapped: [][]byte{memory}}), open(t, gpu.Options{})
			compare(t, b, 1e-5, func(b ops.Backend) []ops.Tensor { return run(t, b) })
			want, got := run(t, apart), run(t, b)
			wait(t, apart)
			wait(t, b)
			if i := differs(want[0].Floats(), got[0].Floats()); i >= 0 {
				t.Errorf("element %d is %g, by itself %g", i, got[0].Floats()[i], want[0].Floats()[i])
			}
		})
	}
}
