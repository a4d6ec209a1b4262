package cpu

import (
	"context"
	"sync"
	"time"

	"lector/engine/ops"
)

// batch is a Backend that puts off operations of few rows: they are phases of one job, which is done before any other operation, and
// at Wait. Handing out work for each of them takes about as long as the work. Helpers begin with the first while the caller prepares
// more. It takes the backend's operations one by one, so that none can be forgotten. It may be used from several goroutines as the
// backend may.
type batch struct {
	b *Backend

	mu     sync.Mutex
	steps  [maxPhases]batchStep // those that the job knows are not written
	phases [maxPhases]phase
	n      int        // steps and phases
	used   []puttable // what steps work in
	job    *job       // what helpers are at; nil: they are not

	part, under ops.Part // of the operations to come, and what time is counted as
	spent       [ops.Parts]time.Duration
	last        time.Time // up to which it is counted
}

// batchStep is a phase of a task.
type batchStep struct {
	task  task
	phase int
	part  ops.Part
}

// puttable is a task that goes back to where it was taken from.
type puttable interface {
	task
	putBack(b *Backend)
}

func (p *pieces) putBack(b *Backend)    { b.cuts.put(p) }
func (r *fewRead) putBack(b *Backend)   { b.reads.put(r) }
func (d *deltaStep) putBack(b *Backend) { b.steps.put(d) }
func (t *expertRun) putBack(b *Backend) { b.experting.put(t) }
func (l *lookback) putBack(b *Backend)  { b.lookbacks.put(l) }
func (t *route) putBack(*Backend)       {} // whoever asked for it has it
func (p *picks) putBack(*Backend)       {}

var (
	_ ops.Batcher = (*Backend)(nil)
	_ interface {
		ops.Backend
		ops.FewRows
		ops.StreamReader
		ops.Picker
		ops.Late
		ops.Clocked
	} = (*batch)(nil)
)

// Batch implements ops.Batcher. Nothing but the time at which operations run differs, and the bits are the same.
func (b *Backend) Batch() ops.Backend {
	return &batch{b: b, last: time.Now()}
}

// later puts off a task.
func (q *batch) later(t puttable, phases ...phase) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n+len(phases) > maxPhases {
		q.flush()
	}
	q.show()
	for i, p := range phases {
		q.steps[q.n], q.phases[q.n] = batchStep{t, i, q.part}, p
		q.n++
	}
	q.used = append(q.used, t)
}

// show lets helpers begin with what was put off. That is not done with the last operation, which the next one may change.
func (q *batch) show() {
	if q.n == 0 || q.b.workers == 1 || q.b.profile.on.Load() && q.job == nil {
		return
	}
	if q.job == nil {
		q.job = q.b.crew.begin(q.b, q)
	}
	q.job.add(q.phases[:q.n])
}

// now runs what was put off, and returns the backend for an operation that is not.
func (q *batch) now() *Backend {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flush()
	return q.b
}

func (q *batch) flush() {
	if q.n == 0 {
		return
	}
	defer q.drop()
	j := q.job
	if j == nil {
		q.b.inPhases(q, q.phases[:q.n]...)
		return
	}
	q.job = nil
	j.add(q.phases[:q.n])
	q.b.crew.complete(q.b, j)
}

// drop forgets what was put off.
func (q *batch) drop() {
	for _, t := range q.used {
		t.putBack(q.b)
	}
	clear(q.used)
	clear(q.steps[:q.n])
	q.n, q.used = 0, q.used[:0]
	q.charge(q.part)
}

func (q *batch) do(s *scratch, phase, from, to int) {
	t := &q.steps[phase]
	t.task.do(s, t.phase, from, to)
}

func (q *batch) near(s *scratch, phase, item int) {
	t := &q.steps[phase]
	if f, ok := t.task.(foresees); ok {
		f.near(s, t.phase, item)
	}
}

func (q *batch) name(phase int) string { return nameOf(q.steps[phase].task, q.steps[phase].phase) }

// begin counts the time so far where another part begins.
func (q *batch) begin(phase int) {
	if part := q.steps[phase].part; part != q.under {
		q.charge(part)
	}
}

// charge counts the time so far, and says what the time from here on is counted as.
func (q *batch) charge(next ops.Part) {
	now := time.Now()
	q.spent[q.under] += now.Sub(q.last)
	q.last, q.under = now, next
}

// Mark implements ops.Late.
func (q *batch) Mark(part ops.Part) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.part = part
	if q.n == 0 {
		q.charge(part)
	}
}

// Spent implements ops.Late.
func (q *batch) Spent() [ops.Parts]time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == 0 {
		q.charge(q.part)
	}
	return q.spent
}

// Waited implements ops.Clocked.
func (q *batch) Waited(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = q.last.Add(d)
}

// Err implements ops.Late.
func (q *batch) Err() error {
	q.b.failed.Lock()
	defer q.b.failed.Unlock()
	return q.b.err
}

// Wait runs what was put off.
func (q *batch) Wait(ctx context.Context) error { return q.now().Wait(ctx) }

// Linear implements ops.Dense.
func (q *batch) Linear(y, x ops.Tensor, w ops.Matrix) {
	if !q.b.TakesFew(x.Rows) || x.Rows == 0 || w.Out == 0 {
		q.now().Linear(y, x, w)
		return
	}
	p := q.b.productOf(y, x, w)
	q.later(p, q.b.few(p))
}

// LinearAll implements ops.FewRows.
func (q *batch) LinearAll(x ops.Tensor, ys []ops.Tensor, ws []*ops.Matrix) {
	if !q.b.TakesFew(x.Rows) || len(ys) == 0 {
		q.now().LinearAll(x, ys, ws)
		return
	}
	p := q.b.productsOf(x, ys, ws)
	q.later(p, phase{p.n, 1})
}

// ReadStreams implements ops.StreamReader.
func (q *batch) ReadStreams(in ops.StreamRead) {
	if !q.b.TakesFew(in.X.Rows) {
		q.now().ReadStreams(in)
		return
	}
	r := q.b.readOf(in)
	q.later(r, r.few()...)
}

// StepDelta implements ops.FewRows.
func (q *batch) StepDelta(d ops.DeltaStep) (exchanged bool) {
	step := q.b.stepOf(d)
	q.later(step, step.phase())
	return d.O.Rows > 0
}

// SharesInside implements ops.FewRows.
func (q *batch) SharesInside() bool { return q.b.SharesInside() }

// Route implements ops.MoE.
func (q *batch) Route(logits ops.Tensor, k int, renorm bool) ops.Route {
	if !q.b.TakesFew(logits.Rows) || logits.Rows == 0 {
		return q.now().Route(logits, k, renorm)
	}
	t := q.b.routeOf(logits, k, renorm)
	q.later(t, phase{1, 1})
	return t
}

// RunShared implements ops.FewRows. It is put off behind the choice of experts if all of them are at hand.
func (q *batch) RunShared(y, x ops.Tensor, e ops.Experts, t ops.Route, s ops.SharedExpert) ops.Usage {
	chosen, _ := t.(*route)
	r, ok := e.Records.(ops.Resident)
	if !ok || !q.b.TakesFew(x.Rows) || !q.ends(chosen) {
		return q.now().RunShared(y, x, e, t, s)
	}
	list := r.Resident(0)
	if list == nil {
		return q.now().RunShared(y, x, e, t, s)
	}
	run := q.b.sharedOf(y, x, e, s)
	phases := run.unchosen(chosen.k, r, list)
	chosen.then = run // before anybody begins with the choice
	q.later(run, phases...)
	return ops.Usage{}
}

// ends says that t is what was put off last, and that a run of experts fits behind it.
func (q *batch) ends(t *route) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t != nil && q.n > 0 && q.n+runPhases <= maxPhases && q.steps[q.n-1].task == task(t)
}

// SelectBlocks implements ops.Attention. Where every row sees all blocks it looks at no number.
func (q *batch) SelectBlocks(iq ops.Tensor, h ops.Heads, bk ops.Tensor, pos, ratio, budget int) ops.Index {
	if ratio > 0 && (pos+iq.Rows)/ratio <= budget {
		return q.b.SelectBlocks(iq, h, bk, pos, ratio, budget)
	}
	return q.now().SelectBlocks(iq, h, bk, pos, ratio, budget)
}

// Attend implements ops.Attention.
func (q *batch) Attend(o, qg ops.Tensor, k, v ops.Cache, index ops.Index, pos, ratio int, d ops.AttentionDims) {
	if !q.b.fused() || !q.b.looksBack(o.Rows, d) {
		q.now().Attend(o, qg, k, v, index, pos, ratio, d)
		return
	}
	fit(d.FitsAttend(o, qg, k, v, pos) && ratio > 0 && pos >= 0, "Attend", o, qg, k.Data, v.Data)
	a := attentionOf(o, qg, k, v, d)
	for r := 0; r < o.Rows; {
		l := q.b.lookbackOf(&a, sight{index, pos, ratio}, r)
		r = l.rows.to
		q.later(l, l.phases[:]...)
	}
}

// Pick implements ops.Picker.
func (q *batch) Pick(y ops.Tensor, n int) ops.Picks {
	p := q.b.pickOf(y, n)
	q.later(p, p.phase())
	return p
}
