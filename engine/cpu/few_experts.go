package cpu

import "lector/engine/ops"

// RunShared is RunExperts and the shared expert. Where the experts of few rows are at hand its last product is computed
// beside theirs.
func (b *Backend) RunShared(y, x ops.Tensor, e ops.Experts, t ops.Route, s ops.SharedExpert) ops.Usage {
	fit(ops.Same(y, x) && ops.Same(s.Gate, s.Up) && s.Score.Rows == x.Rows && s.Score.Cols == 1 && s.Down.In == s.Gate.Cols && s.Down.Out == y.Cols &&
		s.Gate.Rows == x.Rows, "RunShared", y, x, s.Score, s.Gate, s.Up)
	shapes().FitMatrix("RunShared", &s.Down)
	b.SwiGLU(s.Gate, s.Gate, s.Up)
	run := expertRun{Backend: b, experts: e, route: t}
	if b.TakesFew(x.Rows) {
		run.shared = &s
	}
	used := run.all(y, x)
	if !run.added && x.Rows > 0 {
		b.addShared(y, s)
	}
	return used
}

// addShared adds the shared expert by itself.
func (b *Backend) addShared(y ops.Tensor, s ops.SharedExpert) {
	t := expertRun{Backend: b, y: all(y), shared: &s}
	each := b.columns(y.Rows)
	b.parallel((y.Cols+each-1)/each, 1, func(w *scratch, from, to int) {
		t.sharedColumns(w, from*each, min(to*each, y.Cols), next{})
	})
}

// sharedColumns adds the columns [from, to) of the shared expert to y.
func (t *expertRun) sharedColumns(s *scratch, from, to int, then next) {
	gate := all(t.shared.Gate)
	out := rows{data: floats(&s.more, gate.n*(to-from)), stride: to - from, width: to - from, n: gate.n}
	product{y: out, x: gate, w: &t.shared.Down, from: from, to: to, then: then}.run(s)
	for r := range t.y.n {
		t.vector.addScaled(t.y.at(r)[from:to], out.at(r), sigmoid(t.shared.Score.Floats()[r]))
	}
}
