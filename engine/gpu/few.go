package gpu

import (
	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

var _ ops.FewRows = (*Backend)(nil)

// TakesFew implements ops.FewRows.
func (b *Backend) TakesFew(rows int) bool { return few(rows) }

// LinearAll implements ops.FewRows: products that are stored alike go out as one dispatch where they follow one another.
func (b *Backend) LinearAll(x ops.Tensor, ys []ops.Tensor, ws []*ops.Matrix) {
	for i, w := range ws {
		b.Linear(ys[i], x, *w)
	}
}

// deltaStep is the kernel that carries a step out in one dispatch, for key heads of at most dk dims and value heads of dv;
// false where the state of a head is too large for a threadgroup.
func deltaStep(dk, dv int) (kernel[shaders.DeltaStepParams], bool) {
	fits := dv > 0 && dv <= shaders.StepColumns && 4*dv%simdWidth == 0
	switch {
	case dk <= 32:
		return "deltanet_step_32", fits
	case dk <= 64:
		return "deltanet_step_64", fits
	}
	return "deltanet_step_128", fits && dk <= 128
}

// StepDelta implements ops.FewRows. Where one dispatch does it, state and tail are written to where their copies are to be.
func (b *Backend) StepDelta(s ops.DeltaStep) (exchanged bool) {
	n := s.Dims
	k, ok := deltaStep(n.Dk, n.Dv)
	if !ok {
		s.Singly(b)
		return false
	}
	taps := len(s.Conv) / s.QKV.Cols
	fit(n.Hk > 0 && n.Hv%n.Hk == 0 && ops.Same(s.QKV, s.Raw) && s.QKV.Cols == 2*n.Hk*n.Dk+n.Hv*n.Dv && ops.Same(s.O, s.Z) && s.O.Cols == n.Hv*n.Dv &&
		s.O.Rows == s.QKV.Rows && few(s.O.Rows) && ops.Same(s.A, s.B) && s.A.Rows == s.O.Rows && s.A.Cols == n.Hv && s.S.Rows == n.Hv && s.S.Cols == n.Dk*n.Dv &&
		len(s.ALog) == n.Hv && len(s.DtBias) == n.Hv && len(s.Norm) == n.Dv && taps > 0 && len(s.Conv)%s.QKV.Cols == 0 &&
		s.Tail.Cols == s.QKV.Cols && s.Tail.Rows == taps-1 && ops.Same(s.S, s.OldS) && ops.Same(s.Tail, s.OldTail), "StepDelta", s.O, s.QKV, s.Raw, s.Tail)
	if s.O.Rows == 0 {
		return false
	}
	e := b.begin()
	defer e.end()
	p := shaders.DeltaStepParams{
		Rows: uint32(s.O.Rows), Hk: uint32(n.Hk), Hv: uint32(n.Hv), Dk: uint32(n.Dk), Dv: uint32(n.Dv), Taps: uint32(taps), Scale: s.QueryScale, Eps: s.Eps,
	}
	if s.SiLU {
		p.Silu = 1
	}
	dispatch(e, k, p, launch{
		buffers: []region{
			shaders.StepO: at(s.O), shaders.StepQkv: at(s.QKV), shaders.StepRaw: at(s.Raw), shaders.StepTail: at(s.Tail), shaders.StepTailNext: at(s.OldTail),
			shaders.StepConv: e.vector(s.Conv), shaders.StepZ: at(s.Z), shaders.StepA: at(s.A), shaders.StepB: at(s.B),
			shaders.StepRate: e.rate(s.ALog), shaders.StepDtBias: e.vector(s.DtBias), shaders.StepNorm: e.vector(s.Norm),
			shaders.StepS: at(s.S), shaders.StepSNext: at(s.OldS),
		},
		groups: metal.Size{X: n.Hv, Y: 1, Z: 1}, threads: 4 * n.Dv,
		work: 7 * float64(s.O.Rows) * float64(s.S.Rows*s.S.Cols),
	})
	return true
}

// SharesInside implements ops.FewRows: the shared expert's first products go with the experts'.
func (b *Backend) SharesInside() bool { return true }

// RunShared implements ops.FewRows. The shared expert is one more slot of every row; where the experts are not at hand, or
// are stored otherwise, it takes the same kernels by itself, so that its bits do not depend on where experts are.
func (b *Backend) RunShared(y, x ops.Tensor, experts ops.Experts, chosen ops.Route, s ops.SharedExpert) ops.Usage {
	fit(ops.Same(y, x) && few(x.Rows) && s.Score.Rows == x.Rows && s.Score.Cols == 1 && s.GateBy.In == x.Cols && s.UpBy.In == x.Cols &&
		s.GateBy.Out == s.Down.In && s.UpBy.Out == s.Down.In && s.Down.Out == y.Cols && ops.Same(s.Gate, s.Up) && s.Gate.Rows == x.Rows && s.Gate.Cols == s.Down.In,
		"RunShared", y, x, s.Score)
	for _, m := range []*ops.Matrix{&s.GateBy, &s.UpBy, &s.Down} {
		shapes().FitMatrix("RunShared "+m.Name, m)
	}
	used, done := b.runExperts(y, x, experts, chosen, &s)
	if !done && x.Rows > 0 {
		b.addShared(y, x, s)
	}
	return used
}
