package cpu

import "lector/engine/ops"

// SharesInside says no: they go with the other products of the same rows.
func (b *Backend) SharesInside() bool { return false }

// RunShared is RunExperts and the shared expert. Where the experts of few rows are at hand its last product is computed
// beside theirs.
func (b *Backend) RunShared(y, x ops.Tensor, e ops.Experts, t ops.Route, s ops.SharedExpert) ops.Usage {
	run := b.sharedOf(y, x, e, s)
	defer b.experting.put(run)
	run.route = t
	used := run.rows(y, x)
	if !run.added && x.Rows > 0 {
		run.addShared(y)
	}
	return used
}

// sharedOf is a run with the shared expert that fits, without a choice.
func (b *Backend) sharedOf(y, x ops.Tensor, e ops.Experts, s ops.SharedExpert) *expertRun {
	fit(ops.Same(y, x) && ops.Same(s.Gate, s.Up) && s.Score.Rows == x.Rows && s.Score.Cols == 1 && s.Down.In == s.Gate.Cols && s.Down.Out == y.Cols &&
		s.Gate.Rows == x.Rows, "RunShared", y, x, s.Score, s.Gate, s.Up)
	run := b.experting.take()
	run.Backend, run.experts, run.asked = b, e, s
	run.x, run.y = all(x), all(y)
	shapes().FitMatrix("RunShared", &run.asked.Down)
	if b.TakesFew(x.Rows) {
		run.shared = &run.asked
	}
	return run
}

// unchosen prepares a run of few rows whose k experts each are chosen later, out of a list of all.
func (t *expertRun) unchosen(k int, from ops.Resident, list []ops.Expert) []phase {
	t.k, t.from, t.all, t.added = k, from, list, true
	t.phases = [...]phase{t.innerOf(t.x.n*k, t.x.n*k), t.outerOf(t.x.n * k)}
	return t.phases[:]
}

// chosen lists the experts that were chosen, once they are.
func (t *expertRun) chosen(route ops.Route) {
	t.route = route
	t.count()
	t.from.Resident(t.used()) // which counts them: nothing was read meanwhile, so that the list still holds
	t.listAll()
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
