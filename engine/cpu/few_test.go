package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// few calls f with backends of several numbers of workers and sets of kernels.
func few(f func(b *cpu.Backend)) {
	for narrow := range cpu.Widest() + 1 {
		for _, class := range []string{cpu.Blocked, cpu.BFP} {
			for _, workers := range []int{1, 3} {
				f(cpu.Narrow(cpu.New(cpu.Options{Class: class, Workers: workers}), narrow))
			}
		}
	}
}

func same(t *testing.T, what string, got, want ops.Tensor) {
	t.Helper()
	if i := differs(got.Floats(), want.Floats()); i >= 0 {
		t.Errorf("%s: element %d is %g, want %g", what, i, got.Floats()[i], want.Floats()[i])
	}
}

// Several products at once give the bits of each by itself.
func TestLinearAllIsTheSingleProducts(t *testing.T) {
	src := newSource(101)
	for _, rows := range []int{1, 3, 4, 9} {
		x := src.normal(rows*128, 1)
		ws := []matrix{affineMatrix(src, 200, 128, 4, 64, ops.BF16), affineMatrix(src, 1, 128, 6, 32, ops.F32), plainMatrix(src, 33, 128, ops.BF16), affineMatrix(src, 512, 128, 4, 32, ops.F16)}
		ws[2].Precise = true
		few(func(b *cpu.Backend) {
			in := put(b, x, 128)
			var ys []ops.Tensor
			var ms []*ops.Matrix
			for i := range ws {
				if ws[i].Panels = nil; b.PanelBytes(ws[i].Matrix) > 0 {
					ws[i].Panels = new(ops.Panels)
				}
				ys, ms = append(ys, put(b, garbage(rows*ws[i].Out), ws[i].Out)), append(ms, &ws[i].Matrix)
			}
			b.LinearAll(in, ys, ms)
			for i, w := range ws {
				want := put(b, garbage(rows*w.Out), w.Out)
				single := w.Matrix
				single.Panels = nil
				b.Linear(want, in, single)
				same(t, fmt.Sprintf("%d rows, product %d", rows, i), ys[i], want)
			}
		})
	}
}

// A step of DeltaNet gives the bits of the single operations, and moves state and tail on as they do.
func TestStepDeltaIsTheSingleOperations(t *testing.T) {
	src := newSource(102)
	for _, d := range []ops.DeltaDims{{Hk: 1, Hv: 1, Dk: 3, Dv: 5}, {Hk: 2, Hv: 6, Dk: 16, Dv: 64}, {Hk: 3, Hv: 3, Dk: 32, Dv: 128}} {
		for _, rows := range []int{1, 2, 4} {
			const taps = 4
			c, v := 2*d.Hk*d.Dk+d.Hv*d.Dv, d.Hv*d.Dv
			raw, tail, z, a, bb, s := src.normal(rows*c, 1), src.normal((taps-1)*c, 1), src.normal(rows*v, 1), src.normal(rows*d.Hv, 1), src.normal(rows*d.Hv, 1), src.normal(d.Hv*d.Dk*d.Dv, 0.3)
			conv, aLog, dt, norm := src.normal(c*taps, 1), src.normal(d.Hv, 1), src.normal(d.Hv, 1), src.normal(d.Dv, 1)
			few(func(b *cpu.Backend) {
				fresh := func(silu bool) ops.DeltaStep {
					return ops.DeltaStep{
						O: put(b, garbage(rows*v), v), QKV: put(b, garbage(rows*c), c), Raw: put(b, raw, c), Tail: put(b, tail, c), Z: put(b, z, v), A: put(b, a, d.Hv), B: put(b, bb, d.Hv),
						S: put(b, s, d.Dk*d.Dv), OldS: put(b, garbage(len(s)), d.Dk*d.Dv), OldTail: put(b, garbage(len(tail)), c), Dims: d, Conv: conv, ALog: aLog, DtBias: dt, Norm: norm, QueryScale: 0.25, Eps: 1e-6, SiLU: silu,
					}
				}
				for _, silu := range []bool{false, true} {
					got, w := fresh(silu), fresh(silu)
					if b.StepDelta(got) {
						got.S, got.OldS, got.Tail, got.OldTail = got.OldS, got.S, got.OldTail, got.Tail
					}
					b.Conv(w.QKV, w.Raw, w.Tail, conv, 1, true)
					b.UnitHeads(w.QKV, ops.Heads{N: d.Hk, Stride: d.Dk, Dim: d.Dk}, 0.25)
					b.UnitHeads(w.QKV, ops.Heads{From: d.Hk * d.Dk, N: d.Hk, Stride: d.Dk, Dim: d.Dk}, 1)
					b.DeltaGates(w.A, w.B, w.A, w.B, aLog, dt)
					b.DeltaScan(w.O, w.QKV, w.A, w.B, w.S, d)
					b.ShiftTail(w.Tail, w.Raw)
					b.GatedNorm(w.O, w.Z, norm, 1e-6, silu)
					for name, pair := range map[string][2]ops.Tensor{"o": {got.O, w.O}, "qkv": {got.QKV, w.QKV}, "g": {got.A, w.A}, "beta": {got.B, w.B}, "state": {got.S, w.S}, "tail": {got.Tail, w.Tail},
						"old state": {got.OldS, put(b, s, d.Dk*d.Dv)}, "old tail": {got.OldTail, put(b, tail, c)}} {
						same(t, fmt.Sprintf("%+v, %d rows: %s", d, rows, name), pair[0], pair[1])
					}
				}
			})
		}
	}
}

// atHand are stored records that are all in memory, and stay there.
type atHand struct{ shuffled }

func (a *atHand) Resident(int) []ops.Expert { return a.records }

// Records that are all at hand are not swept for few rows.
func TestRecordsAtHandAreNotSwept(t *testing.T) {
	src := newSource(104)
	s := expertShape{4, 64, 32, 40, 4, 40}
	_, records, logits := newExpertCase(src, s, true)
	x := src.normal(s.rows*s.h, 1)
	few(func(b *cpu.Backend) {
		a := &atHand{shuffled{records: records, order: rand.New(rand.NewPCG(1, 2))}}
		y := put(b, garbage(s.rows*s.h), s.h)
		b.RunExperts(y, put(b, x, s.h), ops.Experts{N: s.n, Inner: s.inner, Records: a}, b.Route(put(b, logits, s.n), s.k, true))
		wait(t, b)
		if swept := len(a.given) > 0; swept == b.TakesFew(s.rows) {
			t.Errorf("swept is %v for %d rows", swept, s.rows)
		}
	})
}

// The shared expert beside the others, of records in memory or stored, gives the bits of itself behind them.
func TestRunSharedIsTheSingleOperations(t *testing.T) {
	src := newSource(103)
	for _, s := range []expertShape{{1, 64, 32, 8, 3, 8}, {4, 64, 32, 40, 4, 40}, {9, 64, 32, 9, 2, 9}} { // all at once, in groups, many rows
		_, records, logits := newExpertCase(src, s, true)
		x, score, gate, up := src.normal(s.rows*s.h, 1), src.normal(s.rows, 1), src.normal(s.rows*96, 1), src.normal(s.rows*96, 1)
		down := affineMatrix(src, s.h, 96, 4, 32, ops.BF16)
		few(func(b *cpu.Backend) {
			in, l := put(b, x, s.h), put(b, logits, s.n)
			memory := ops.Experts{N: s.n, Inner: s.inner, At: func(e int) ops.Expert { return records[e] }}
			want, out, g := put(b, garbage(s.rows*s.h), s.h), put(b, garbage(s.rows*s.h), s.h), put(b, gate, 96)
			b.RunExperts(want, in, memory, b.Route(l, s.k, true))
			b.SwiGLU(g, g, put(b, up, 96))
			b.Linear(out, g, down.Matrix)
			b.AddGated(want, out, put(b, score, 1))
			for _, e := range []ops.Experts{
				memory, {N: s.n, Inner: s.inner, Records: &shuffled{records: records, order: rand.New(rand.NewPCG(1, 2))}},
				{N: s.n, Inner: s.inner, Records: &atHand{shuffled{records: records, order: rand.New(rand.NewPCG(1, 2))}}},
			} {
				got := put(b, garbage(s.rows*s.h), s.h)
				b.RunShared(got, in, e, b.Route(l, s.k, true), ops.SharedExpert{Score: put(b, score, 1), Gate: put(b, gate, 96), Up: put(b, up, 96), Down: down.Matrix})
				wait(t, b)
				same(t, fmt.Sprintf("%+v, stored %v", s, e.Records != nil), got, want)
			}
		})
	}
}
