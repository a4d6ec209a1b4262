package cpu

import (
	"runtime"

	"lector/engine/ops"
)

// stored runs experts whose records come from storage: each once for all rows, in the order in which they come. The
// outputs of all slots are held until the last record is there, so that every sum has the same order as always.
func (t *expertRun) stored(y, x ops.Tensor) {
	t.x, t.y = all(x), all(y)
	t.count()
	sweep := t.experts.Records.Sweep(t.wants())
	defer sweep.End() // a fault in the network panics; the lanes must not outlive it
	items := sweep.Items()
	t.order(items)
	if len(items) <= storedGroup && len(t.pair) <= fewPairs {
		if err := t.together(sweep); err != nil {
			t.fail(err)
		}
		return
	}
	t.shared = nil // it is added behind the groups
	held, err := t.hold()
	if err != nil {
		t.fail(err)
		return
	}
	defer t.held.Put(held)
	out := rows{data: held.floats, stride: x.Cols, width: x.Cols}
	err = t.groups(sweep, items, &out)
	if late := sweep.End(); err == nil {
		err = late
	}
	if err != nil {
		t.fail(err)
		return
	}
	t.parallel(t.y.n, grain(t.k*t.y.width), func(_ *scratch, from, to int) {
		for r := from; r < to; r++ {
			t.sum(t.y.at(r), r, &out, 0)
		}
	})
}

// resident runs few rows on records that are all at hand, without a sweep; false where they are not.
func (t *expertRun) resident(y, x ops.Tensor) bool {
	r, ok := t.experts.Records.(ops.Resident)
	if !ok || !t.TakesFew(x.Rows) {
		return false
	}
	t.x, t.y = all(x), all(y)
	t.count()
	if t.all = r.Resident(t.used()); len(t.all) == 0 {
		return false
	}
	t.listAll()
	t.run()
	return true
}

// used is how many experts rows go to.
func (t *expertRun) used() (n int) {
	for _, pairs := range t.counts {
		n += min(pairs, 1)
	}
	return n
}

// listAll lists the counted pairs, where all experts are at hand.
func (t *expertRun) listAll() { t.list(func(e int) ops.Expert { return t.all[e] }) }

// together takes records that can all be there at once as those in memory.
func (t *expertRun) together(sweep ops.Sweep) error {
	last := len(t.sorted) - 1
	if err := sweep.Wait(last); err != nil {
		return err
	}
	t.active = append(t.active[:0], t.sorted...)
	for i := range t.active {
		t.check(&t.active[i].Expert)
	}
	t.run()
	sweep.Done(last)
	return sweep.End()
}

// wants lists the experts that rows go to.
func (t *expertRun) wants() []ops.Want {
	wants := make([]ops.Want, 0, len(t.counts))
	for e, n := range t.counts {
		if n > 0 {
			wants = append(wants, ops.Want{Expert: e, Rows: n})
		}
	}
	return wants
}

// order groups the pairs by expert in the order of the sweep.
func (t *expertRun) order(items []ops.Item) {
	at := 0
	t.sorted = t.sorted[:0]
	for _, item := range items {
		t.sorted = append(t.sorted, activeExpert{item.Record, at, at + item.Rows})
		t.counts[item.Expert] = at
		at += item.Rows
	}
	t.place()
}

// outputs is memory for the outputs of all slots. It only grows, and goes with the pool that keeps it.
type outputs struct {
	floats []float32 // of the call
	all    []float32
	free   func() // nil for memory of Go's heap
	unmap  runtime.Cleanup
}

// hold returns memory for the outputs of all slots, [pairs, width].
func (t *expertRun) hold() (*outputs, error) {
	n := len(t.pair) * t.y.width
	o, _ := t.held.Get().(*outputs)
	if o == nil {
		o = &outputs{}
	}
	if len(o.all) < n {
		if err := o.grow(n); err != nil {
			return nil, err
		}
	}
	o.floats = o.all[:n]
	return o, nil
}

func (o *outputs) grow(n int) (err error) {
	if o.free != nil {
		o.unmap.Stop()
		o.free()
	}
	o.all, o.floats = nil, nil
	if o.all, o.free, err = allocate(n); err != nil {
		return err
	}
	if o.free != nil {
		o.unmap = runtime.AddCleanup(o, func(free func()) { free() }, o.free)
	}
	return nil
}

// groups takes the records as they arrive, some at a time.
func (t *expertRun) groups(sweep ops.Sweep, items []ops.Item, out *rows) error {
	for from := 0; from < len(items); from += storedGroup {
		to := min(from+storedGroup, len(items))
		if err := sweep.Wait(to - 1); err != nil {
			return err
		}
		for i := from; i < to; i++ {
			t.check(&t.sorted[i].Expert)
		}
		t.parts(t.sorted[from:to], out)
		sweep.Done(to - 1)
	}
	return nil
}

// parts computes a group of experts, at most storedPairs pairs at a time.
func (t *expertRun) parts(group []activeExpert, out *rows) {
	t.active = t.active[:0]
	room := storedPairs
	for _, e := range group {
		for e.from < e.to {
			n := min(room, e.to-e.from)
			t.active = append(t.active, activeExpert{e.Expert, e.from, e.from + n})
			e.from += n
			if room -= n; room == 0 {
				t.part(out)
				room = storedPairs
			}
		}
	}
	t.part(out)
}

// part computes the experts in flight, if there are any.
func (t *expertRun) part(out *rows) {
	if len(t.active) == 0 {
		return
	}
	t.inPhases(t, t.innerPhase())
	t.project(out)
	t.active = t.active[:0]
}

// project computes the outputs of the pairs in flight; an item of work is some columns of one expert.
func (t *expertRun) project(out *rows) {
	h, width := t.y.width, t.experts.Inner
	each := t.columns(t.active[len(t.active)-1].to - t.base)
	blocks := (h + each - 1) / each
	call := t.newCall()
	inside := rows{data: t.inside, stride: width, width: width}
	t.parallel(len(t.active)*blocks, 1, func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			e, at := &t.active[i/blocks], i%blocks*each
			product{
				y: out.span(e.from, e.to), at: at, x: inside.span(e.from-t.base, e.to-t.base),
				w: &e.Down, from: at, to: min(at+each, h), call: call,
			}.run(s)
		}
	})
}
