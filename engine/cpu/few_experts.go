package cpu

import "lector/engine/ops"

// RunShared is RunExperts and the shared expert. Where the experts of few rows are at hand its last product is computed
// beside theirs.
func (b *Backend) RunShared(y, x ops.Tensor, e ops.Experts, t ops.Route, s ops.SharedExpert) ops.Usage {
	fit(ops.Same(y, x) && ops.Same(s.Gate, s.Up) && s.Score.Rows == x.Rows && s.Score.Cols == 1 && s.Down.In == s.Gate.Cols && s.Down.Out == y.Cols &&
		s.Gate.Rows == x.Rows, "RunShared", y, x, s.Score, s.Gate, s.Up)
	shapes().FitMatrix("RunShared", &s.Down)
	run := b.experting.take()
	defer b.experting.put(run)
	run.Backend, run.experts, run.route, run.asked = b, e, t, s
	if b.TakesFew(x.Rows) {
		run.shared = &run.asked
	}
	used := run.all(y, x)
	if !run.added && x.Rows > 0 {
		run.addShared(y)
	}
	return used
}

// addShared adds the shared expert by itself.
func (t *expertRun) addShared(y ops.Tensor) {
	t.y, t.shared, t.outerCall = all(y), &t.asked, t.newCall()
	t.SwiGLU(t.asked.Gate, t.asked.Gate, t.asked.Up)
	each := t.columns(y.Rows)
	t.parallel((y.Cols+each-1)/each, 1, func(w *scratch, from, to int) {
		t.sharedColumns(w, from*each, min(to*each, y.Cols), next{})
	})
}

// activateShared makes the shared expert's activations in the place of its gates.
func (t *expertRun) activateShared(s *scratch) {
	gate, up := t.shared.Gate.Floats(), t.shared.Up.Floats()
	s.vector.swiGLU(gate, gate, up)
}

// sharedColumns adds the columns [from, to) of the shared expert to y.
func (t *expertRun) sharedColumns(s *scratch, from, to int, then next) {
	gate := all(t.shared.Gate)
	out := rows{data: floats(&s.more, gate.n*(to-from)), stride: to - from, width: to - from, n: gate.n}
	product{y: out, x: gate, w: &t.shared.Down, from: from, to: to, call: t.outerCall, slot: len(t.active), then: then}.run(s)
	for r := range t.y.n {
		t.vector.addScaled(t.y.at(r)[from:to], out.at(r), sigmoid(t.shared.Score.Floats()[r]))
	}
}
