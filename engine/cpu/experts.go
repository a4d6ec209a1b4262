package cpu

import "lector/engine/ops"

// expertRows bounds the rows in flight, and with them the memory of one call: k x expertRows inner activations.
const expertRows = 1024

// RunExperts: y[r] = sum over r's slots, in slot order, of weight * Down(silu(Gate x) * Up x).
func (b *Backend) RunExperts(y, x ops.Tensor, e ops.Experts, t ops.Route) ops.Usage {
	fit(same(y, x), "RunExperts", y, x)
	run := expertRun{Backend: b, experts: e, route: t, seen: make([]bool, e.N)}
	for from := 0; from < x.Rows; from += expertRows {
		to := min(from+expertRows, x.Rows)
		run.first = from
		run.x, run.y = all(x).span(from, to), all(y).span(from, to)
		run.group()
		run.inner()
		run.outer()
	}
	return run.usage
}

// expertRun is one call of RunExperts, and within it one tile of rows. A pair is a row and one of its slots; the
// pairs of a tile stand grouped by expert, rows ascending.
type expertRun struct {
	*Backend
	experts ops.Experts
	route   ops.Route
	seen    []bool
	usage   ops.Usage

	x, y  rows // the tile
	first int  // its first row
	k     int  // slots of a row

	active []activeExpert
	row    []int32   // row of a pair
	pair   []int32   // pair of row r and slot s, at r*k + s
	inside []float32 // [pairs, Inner], the activations
}

// activeExpert is an expert that pairs [from, to) go to.
type activeExpert struct {
	ops.Expert
	from, to int
}

// group lists the pairs of the tile by expert, and counts what is read for the first time.
func (t *expertRun) group() {
	counts := make([]int, t.experts.N+1)
	for r := range t.x.n {
		experts, _ := t.route.Row(t.first + r)
		t.k = len(experts)
		for _, e := range experts {
			counts[e+1]++
		}
	}
	t.active = t.active[:0]
	for e := range t.experts.N {
		n := counts[e+1]
		counts[e+1] += counts[e]
		if n == 0 {
			continue
		}
		record := t.experts.At(e)
		t.check(&record)
		t.active = append(t.active, activeExpert{record, counts[e], counts[e+1]})
		if !t.seen[e] {
			t.seen[e] = true
			t.usage.Records++
			t.usage.Bytes += int64(record.Bytes())
		}
	}
	t.row, t.pair = make([]int32, t.x.n*t.k), make([]int32, t.x.n*t.k)
	for r := range t.x.n {
		experts, _ := t.route.Row(t.first + r)
		for s, e := range experts {
			t.row[counts[e]] = int32(t.x.first + r)
			t.pair[r*t.k+s] = int32(counts[e])
			counts[e]++
		}
	}
}

func (t *expertRun) check(e *ops.Expert) {
	for _, m := range []*ops.Matrix{&e.Gate, &e.Up} {
		fit(m.In == t.x.width && m.Out == t.experts.Inner, "RunExperts "+m.Name)
		fitMatrix("RunExperts", m)
	}
	fit(e.Down.In == t.experts.Inner && e.Down.Out == t.x.width, "RunExperts "+e.Down.Name)
	fitMatrix("RunExperts", &e.Down)
}

// inner computes the activations of all pairs; an item of work is some columns of one expert.
func (t *expertRun) inner() {
	width := t.experts.Inner
	t.inside = floats(&t.inside, len(t.pair)*width)
	blocks := (width + outputsPerItem - 1) / outputsPerItem
	t.parallel(len(t.active)*blocks, 1, func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			at := i % blocks * outputsPerItem
			t.innerColumns(s, &t.active[i/blocks], at, min(at+outputsPerItem, width))
		}
	})
}

func (t *expertRun) innerColumns(s *scratch, e *activeExpert, from, to int) {
	n, width := e.to-e.from, t.experts.Inner
	x := t.x
	x.list, x.n = t.row[e.from:e.to], n
	gate := rows{data: t.inside, stride: width, width: width, first: e.from, n: n}
	up := rows{data: floats(&s.values, n*(to-from)), stride: to - from, width: to - from, n: n}
	product{y: gate, at: from, x: x, w: &e.Gate, from: from, to: to}.run(s)
	product{y: up, x: x, w: &e.Up, from: from, to: to}.run(s)
	for i := range n {
		g := gate.at(i)[from:to]
		s.vector.swiGLU(g, g, up.at(i))
	}
}

// outer computes the rows of y; an item of work is some columns, which it takes through all experts, so that the
// outputs of all slots are held for those columns only.
func (t *expertRun) outer() {
	h := t.y.width
	blocks := (h + outputsPerItem - 1) / outputsPerItem
	t.parallel(blocks, 1, func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			at := i * outputsPerItem
			t.outerColumns(s, at, min(at+outputsPerItem, h))
		}
	})
}

func (t *expertRun) outerColumns(s *scratch, from, to int) {
	inside := rows{data: t.inside, stride: t.experts.Inner, width: t.experts.Inner}
	out := rows{data: floats(&s.values, len(t.pair)*(to-from)), stride: to - from, width: to - from}
	for i := range t.active {
		e := &t.active[i]
		product{y: out.span(e.from, e.to), x: inside.span(e.from, e.to), w: &e.Down, from: from, to: to}.run(s)
	}
	for r := range t.y.n {
		_, weights := t.route.Row(t.first + r)
		y := t.y.at(r)[from:to]
		clear(y)
		for slot, w := range weights {
			s.vector.addScaled(y, out.at(int(t.pair[r*t.k+slot])), w)
		}
	}
}
