package cpu

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

const (
	// expertRows bounds the rows in flight where experts are in memory, and with them the memory of one call.
	expertRows = 1024
	// storedGroup is how many stored records are used at a time.
	storedGroup = 8
	// storedPairs bounds the pairs in flight where records are stored.
	storedPairs = 4096
)

// RunExperts: y[r] = sum over r's slots, in slot order, of weight * Down(silu(Gate x) * Up x).
func (b *Backend) RunExperts(y, x ops.Tensor, e ops.Experts, t ops.Route) ops.Usage {
	fit(ops.Same(y, x), "RunExperts", y, x)
	run := b.experting.take()
	defer b.experting.put(run)
	run.Backend, run.experts, run.route = b, e, t
	return run.rows(y, x)
}

// rows runs all rows.
func (t *expertRun) rows(y, x ops.Tensor) ops.Usage {
	if t.experts.Records != nil {
		if x.Rows > 0 && !t.resident(y, x) {
			t.stored(y, x)
		}
		return ops.Usage{}
	}
	t.seen = cleared(t.seen, t.experts.N)
	for from := 0; from < x.Rows; from += expertRows {
		to := min(from+expertRows, x.Rows)
		t.first = from
		t.x, t.y = all(x).span(from, to), all(y).span(from, to)
		t.group()
		t.run()
	}
	return t.usage
}

// ExpertBytes is the most memory that RunExperts takes. Stored records come in any order and only once, so that the
// outputs of all slots are held until their sums are made in slot order.
func (b *Backend) ExpertBytes(d ops.ExpertDims, rows int) int {
	if !d.Stored {
		return 4 * min(rows, expertRows) * d.TopK * (d.Inner + b.workers*b.outputs(rows*d.TopK, d.Inner) + 2)
	}
	pairs := rows * d.TopK
	return 4 * (pairs*(d.Width+2) + min(pairs, storedPairs)*(d.Inner+b.workers*b.outputs(pairs, d.Inner)))
}

// expertRun is one call of RunExperts, and within it one tile of rows. A pair is a row and one of its slots; the
// pairs of a tile stand grouped by expert, rows ascending.
type expertRun struct {
	*Backend
	experts ops.Experts
	route   ops.Route
	usage   ops.Usage

	shared *ops.SharedExpert // that comes with the others; nil: it does not
	asked  ops.SharedExpert  // what shared points to
	added  bool              // it came

	x, y  rows // the tile
	first int  // its first row
	k     int  // slots of a row

	expertMemory
	base int // the first pair in flight

	all  []ops.Expert // of the layer, where all are at hand
	from ops.Resident // what has them, where they are chosen later

	innerEach, innerBlocks int // columns an item of an expert, and items of an expert
	innerItems             int // of all experts
	outerEach              int // columns of y an item
	innerCalls, outerCall  int // of products: the former is one for all experts of one row each, and others for every pair in flight
	phases                 [runPhases]phase
}

// The phases of a run.
const (
	runInner = iota
	runOuter
	runPhases
)

// expertMemory is what a call works in. It only grows, and the next call takes it over.
type expertMemory struct {
	seen   []bool         // by expert: it was read
	active []activeExpert // those in flight
	sorted []activeExpert // stored ones, in the order of the sweep
	counts []int          // by expert: its pairs
	row    []int32        // row of a pair
	pair   []int32        // pair of row r and slot s, at r*k + s
	inside []float32      // [pairs in flight, Inner], the activations
}

// reset forgets the records, which are not ours.
func (t *expertRun) reset() {
	m := t.expertMemory
	clear(m.active[:cap(m.active)])
	clear(m.sorted[:cap(m.sorted)])
	m.active, m.sorted = m.active[:0], m.sorted[:0]
	*t = expertRun{expertMemory: m}
}

// cleared is n zeros, in the memory of list where it has room.
func cleared[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	list = list[:n]
	clear(list)
	return list
}

// activeExpert is an expert that pairs [from, to) go to.
type activeExpert struct {
	ops.Expert
	from, to int
}

// group lists the pairs of the tile by expert, and counts what is read for the first time.
func (t *expertRun) group() {
	t.count()
	t.list(func(e int) ops.Expert {
		record := t.experts.At(e)
		if !t.seen[e] {
			t.seen[e] = true
			t.usage.Records++
			t.usage.Bytes += int64(record.Bytes())
		}
		return record
	})
}

// list lists the counted pairs by expert, whose records at says.
func (t *expertRun) list(at func(e int) ops.Expert) {
	t.active = t.active[:0]
	first := 0
	for e, n := range t.counts {
		if n == 0 {
			continue
		}
		t.active = append(t.active, activeExpert{at(e), first, first + n})
		t.check(&t.active[len(t.active)-1].Expert)
		t.counts[e] = first
		first += n
	}
	t.place()
}

// count sets counts to the pairs of every expert.
func (t *expertRun) count() {
	t.counts = cleared(t.counts, t.experts.N)
	for r := range t.x.n {
		experts, _ := t.route.Row(t.first + r)
		t.k = len(experts)
		for _, e := range experts {
			t.counts[e]++
		}
	}
}

// place fills row and pair. counts holds every expert's first pair, and is used up.
func (t *expertRun) place() {
	t.row, t.pair = cleared(t.row, t.x.n*t.k), cleared(t.pair, t.x.n*t.k)
	for r := range t.x.n {
		experts, _ := t.route.Row(t.first + r)
		for s, e := range experts {
			t.row[t.counts[e]] = int32(t.x.first + r)
			t.pair[r*t.k+s] = int32(t.counts[e])
			t.counts[e]++
		}
	}
}

func (t *expertRun) check(e *ops.Expert) {
	for _, m := range []*ops.Matrix{&e.Gate, &e.Up} {
		t.checkMatrix(m, t.x.width, t.experts.Inner)
	}
	t.checkMatrix(&e.Down, t.experts.Inner, t.x.width)
}

func (t *expertRun) checkMatrix(m *ops.Matrix, in, out int) {
	if m.In != in || m.Out != out { // the message is made only if it is needed
		fit(false, "RunExperts "+m.Name)
	}
	shapes().FitMatrix("RunExperts", m)
}

// run computes the pairs in flight, which are all of the tile's: their activations, and then the rows of y.
func (t *expertRun) run() {
	t.added = t.shared != nil
	t.inPhases(t, t.innerPhase(), t.outerOf(len(t.pair)))
}

// innerPhase is the activations of the pairs in flight.
func (t *expertRun) innerPhase() phase {
	first, last := t.active[0].from, t.active[len(t.active)-1].to
	t.base = first
	return t.innerOf(len(t.active), last-first)
}

// innerOf is the activations of so many pairs of at most so many experts; an item of work is some columns of one expert. Those of the
// shared one are a last item.
func (t *expertRun) innerOf(experts, pairs int) phase {
	t.inside = floats(&t.inside, pairs*t.experts.Inner)
	t.innerEach = t.columns(pairs)
	t.innerBlocks = (t.experts.Inner + t.innerEach - 1) / t.innerEach
	t.innerItems, t.innerCalls = experts*t.innerBlocks, t.newCalls(1+pairs)
	if t.shared != nil {
		return phase{t.innerItems + 1, 1}
	}
	return phase{t.innerItems, 1}
}

// outerOf is the rows of y for so many pairs; an item of work is some columns, which it takes through all experts, so that the
// outputs of all slots are held for those columns only.
func (t *expertRun) outerOf(pairs int) phase {
	t.outerEach, t.outerCall = t.outputs(pairs, t.experts.Inner), t.newCall()
	return phase{(t.y.width + t.outerEach - 1) / t.outerEach, 1}
}

func (t *expertRun) do(s *scratch, phase, from, to int) {
	for i := from; i < to; i++ {
		switch {
		case phase == runOuter:
			t.outer(s, i)
		case i == t.innerItems:
			t.activateShared(s)
		case i < len(t.active)*t.innerBlocks: // rows may have chosen the same
			t.inner(s, i)
		}
	}
}

// near brings Down near: of the experts that came before it is known which they are.
func (t *expertRun) near(s *scratch, phase, item int) {
	if phase == runOuter && s.chains != nil && len(t.active) > 0 {
		s.chains.near(&t.active[0].Down, item*t.outerEach)
	}
}

func (t *expertRun) name(phase int) string {
	return [...]string{"experts Gate, Up", "experts Down"}[phase]
}

// inner computes item i of the activations.
func (t *expertRun) inner(s *scratch, i int) {
	e, at := i/t.innerBlocks, i%t.innerBlocks*t.innerEach
	then := next{} // what follows for this worker
	if e := (i + 1) / t.innerBlocks; i+1 < s.end && e < len(t.active) {
		then = next{&t.active[e].Gate, (i + 1) % t.innerBlocks * t.innerEach}
	}
	t.innerColumns(s, &t.active[e], span{at, min(at+t.innerEach, t.experts.Inner)}, then)
}

// outer computes item i of the rows of y.
func (t *expertRun) outer(s *scratch, i int) {
	at, then := i*t.outerEach, next{}
	if i+1 < s.end {
		then = next{&t.active[0].Down, at + t.outerEach}
	}
	t.outerColumns(s, at, min(at+t.outerEach, t.y.width), then)
}

// columns is how many columns an item of work computes for so many pairs.
func (b *Backend) columns(pairs int) int {
	switch {
	case !b.fused():
		return outputsPerItem
	case pairs <= fewPairs:
		return fma.FewOutputs
	}
	return blockedOutputs
}

// outputs is how many columns of y, of so many inputs, an item of work computes for so many pairs.
func (b *Backend) outputs(pairs, inputs int) int {
	if b.fused() && b.class != AMX && pairs <= fewPairs {
		return fewColumns(inputs)
	}
	return b.columns(pairs)
}

// fewPairs is up to how many pairs an item takes few columns, so that there are some for every worker.
const fewPairs = 64

func (t *expertRun) innerColumns(s *scratch, e *activeExpert, c span, then next) {
	n, width, from, to := e.to-e.from, t.experts.Inner, c.from, c.to
	x, call := t.x, t.innerCalls+1+e.from-t.base
	if x.list, x.n = t.row[e.from:e.to], n; n == 1 { // experts of one row share what it is packed in
		x.first, x.list, call = int(x.list[0]), nil, t.innerCalls
	}
	gate := rows{data: t.inside, stride: width, width: width, first: e.from - t.base, n: n}
	up := rows{data: floats(&s.values, n*(to-from)), stride: to - from, width: to - from, n: n}
	together(s, product{y: gate, at: from, x: x, w: &e.Gate, from: from, to: to, call: call, then: next{&e.Up, from}},
		product{y: up, x: x, w: &e.Up, from: from, to: to, call: call, then: then})
	for i := range n {
		g := gate.at(i)[from:to]
		s.vector.swiGLU(g, g, up.at(i))
	}
}

func (t *expertRun) outerColumns(s *scratch, from, to int, then next) {
	inside := rows{data: t.inside, stride: t.experts.Inner, width: t.experts.Inner}
	out := rows{data: floats(&s.values, len(t.pair)*(to-from)), stride: to - from, width: to - from}
	for i := range t.active {
		e, after := &t.active[i], then
		switch {
		case i+1 < len(t.active):
			after = next{&t.active[i+1].Down, from}
		case t.shared != nil:
			after = next{&t.shared.Down, from}
		}
		product{y: out.span(e.from, e.to), x: inside.span(e.from, e.to), w: &e.Down, from: from, to: to, call: t.outerCall, slot: i, then: after}.run(s)
	}
	for r := range t.y.n {
		t.sum(t.y.at(r)[from:to], r, &out, 0)
	}
	if t.shared != nil {
		t.sharedColumns(s, from, to, then)
	}
}

// sum adds the outputs of row r's slots in slot order; columns of out start at `from`.
func (t *expertRun) sum(y []float32, r int, out *rows, from int) {
	_, weights := t.route.Row(t.first + r)
	clear(y)
	for slot, w := range weights {
		t.vector.addScaled(y, out.at(int(t.pair[r*t.k+slot]))[from:from+len(y)], w)
	}
}
