package gpu

import (
	"fmt"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	moeRoute     kernel[shaders.RouteParams]    = "moe_route"
	moeGemmHalf  kernel[shaders.ExpertParams]   = "moe_gemm_half"
	moeGemmFloat kernel[shaders.ExpertParams]   = "moe_gemm_float"
	moeActivate  kernel[shaders.ActivateParams] = "moe_activate"
	moeSum       kernel[shaders.SumParams]      = "moe_sum"
)

const (
	// expertWork is how much one dispatch of the experts' products computes.
	expertWork = 50e9
	// outputBytes bounds the outputs of all slots held at once where the experts are in memory: columns of y are then
	// computed some at a time, each for all slots, so that a sum keeps the order of its slots.
	outputBytes = 64 << 20
)

// route is the choice of experts of a chunk. It lies in memory that the next choice writes over: a Route is of use until
// the next call of Route.
type route struct {
	b       *Backend
	turn    int // of the choice, to tell a late use
	rows, k int
	experts region // [rows, k]; unbound after a failure
	weights region
}

// Row returns the experts of row r in slot order and their weights. Coherent after Wait, until the next call of Route.
func (t *route) Row(r int) (experts []int32, weights []float32) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.row(r)
}

func (t *route) row(r int) (experts []int32, weights []float32) {
	if t.turn != t.b.choices.routes || t.experts.buf == nil {
		panic("gpu: a route is read after the next call of Route, or after a failure")
	}
	return intsOf(t.experts.plus(4 * r * t.k).view(4 * t.k)), floatsOf(t.weights.plus(4 * r * t.k).view(4 * t.k))
}

// routeOfFewBytes holds the experts of few rows and their weights.
const routeOfFewBytes = 2 * 4 * shaders.VectorRows * shaders.RouteSlots

// newRoute makes room for the choice of a chunk.
func (e *encoding) newRoute(rows, k int) *route {
	e.b.choices.routes++
	t := &route{b: e.b, turn: e.b.choices.routes, rows: rows, k: k}
	if few(rows) { // the device itself may look their experts up
		if m := e.lasting(routeOfFew, routeOfFewBytes); m != nil {
			t.experts, t.weights = m.whole(), m.whole().plus(routeOfFewBytes/2)
		}
		return t
	}
	experts, weights := e.lasting(routeExperts, 4*rows*k), e.lasting(routeWeights, 4*rows*k)
	if !e.failed() {
		t.experts, t.weights = experts.whole(), weights.whole()
	}
	return t
}

// Route: softmax over the logits of a row, then the k most probable, ties to the lower expert. At most
// shaders.RouteExperts experts and shaders.RouteSlots slots.
func (b *Backend) Route(logits ops.Tensor, k int, renorm bool) ops.Route {
	fit(k > 0 && k <= min(logits.Cols, shaders.RouteSlots) && logits.Cols <= shaders.RouteExperts, "Route", logits)
	e := b.begin()
	defer e.end()
	t := e.newRoute(logits.Rows, k)
	if e.failed() {
		return t
	}
	p := shaders.RouteParams{Rows: uint32(logits.Rows), Experts: uint32(logits.Cols), Slots: uint32(k)}
	if renorm {
		p.Renorm = 1
	}
	dispatch(e, moeRoute, p, launch{
		buffers: []region{shaders.RouteExpert: t.experts, shaders.RouteWeight: t.weights, shaders.RouteLogits: at(logits)},
		groups:  over(logits.Rows, shaders.BlockSimds), threads: shaders.BlockThreads,
	})
	return t
}

// RunExperts: y[r] = sum over r's slots, in slot order, of weight * Down(silu(Gate x) * Up x). It waits for the routing,
// but for few rows' where all experts are on the device.
func (b *Backend) RunExperts(y, x ops.Tensor, experts ops.Experts, chosen ops.Route) ops.Usage {
	used, _ := b.runExperts(y, x, experts, chosen, nil)
	return used
}

// runExperts is RunExperts; added says that the shared expert, where there is one, is in y too.
func (b *Backend) runExperts(y, x ops.Tensor, experts ops.Experts, chosen ops.Route, shared *ops.SharedExpert) (used ops.Usage, added bool) {
	t, mine := chosen.(*route)
	fit(mine && t.b == b && t.rows == x.Rows && ops.Same(y, x), "RunExperts", y, x)
	if x.Rows == 0 {
		return used, false
	}
	e := b.begin()
	defer e.end()
	run := expertRun{encoding: e, experts: experts, route: t, x: x, y: y}
	if few(x.Rows) && !e.failed() {
		if shared != nil {
			run.shared = e.sharedPart(shared)
		}
		if used, done := run.resident(); done {
			return used, run.added
		}
	}
	if !e.sync() {
		return used, false
	}
	if err := run.count(); err != nil {
		b.fail(err)
		return used, false
	}
	if experts.Records != nil {
		run.stored()
		return used, false
	}
	return run.mapped(), false
}

// ExpertBytes is the most memory that RunExperts takes beside its tensors and slots, with any number of experts.
func (b *Backend) ExpertBytes(d ops.ExpertDims, rows int) int {
	return expertScratch(d, rows) + expertLists(d, rows*d.TopK, rows) + 2*chunkBytes
}

// columnsAtOnce is how many columns of y are computed at a time, for all slots.
func columnsAtOnce(pairs, width int) int {
	n := outputBytes / (4 * max(pairs, 1)) / shaders.TileOutputs * shaders.TileOutputs
	return min(max(n, shaders.TileOutputs), width)
}

// expertRun is one call of RunExperts. A pair is a row and one of its slots; pairs stand grouped by expert, in the order
// of the active ones, rows ascending.
type expertRun struct {
	*encoding
	experts ops.Experts
	route   *route
	x, y    ops.Tensor
	shared  *sharedPart // nil without one
	added   bool        // it is in y

	counts []int // by expert: its pairs; after place, its end
	active []activeExpert
	rows   region // [pairs], row of a pair
	pairs  region // [rows, k], pair of a slot
}

// activeExpert is an expert that pairs [from, to) go to.
type activeExpert struct {
	ops.Expert
	from, to int
}

func (t *expertRun) inner() int { return t.experts.Inner }
func (t *expertRun) total() int { return t.x.Rows * t.route.k }

// count sets counts to the pairs of every expert. Logits that are no numbers choose no expert.
func (t *expertRun) count() error {
	t.counts = make([]int, t.experts.N)
	for r := range t.x.Rows {
		experts, _ := t.route.row(r)
		for _, e := range experts {
			if e < 0 || int(e) >= t.experts.N {
				return fmt.Errorf("%w: route row %d: it chose expert %d of %d, so its logits are not finite", ops.ErrNumeric, r, e, t.experts.N)
			}
			t.counts[e]++
		}
	}
	return nil
}

// place uploads the lists of rows and pairs. counts holds every expert's first pair, and is used up.
func (t *expertRun) place() {
	k := t.route.k
	rows, pairs := make([]uint32, t.total()), make([]uint32, t.total())
	for r := range t.x.Rows {
		experts, _ := t.route.row(r)
		for s, e := range experts {
			rows[t.counts[e]] = uint32(r)
			pairs[r*k+s] = uint32(t.counts[e])
			t.counts[e]++
		}
	}
	t.rows, t.pairs = upload(t.encoding, rows), upload(t.encoding, pairs)
}

// activate lists an expert for the next n pairs.
func (t *expertRun) activate(e int, record ops.Expert, n int) {
	for _, m := range []*ops.Matrix{&record.Gate, &record.Up} {
		fit(m.In == t.x.Cols && m.Out == t.inner(), "RunExperts "+m.Name)
		shapes().FitMatrix("RunExperts", m)
	}
	fit(record.Down.In == t.inner() && record.Down.Out == t.x.Cols, "RunExperts "+record.Down.Name)
	shapes().FitMatrix("RunExperts", &record.Down)
	from := 0
	if last := len(t.active) - 1; last >= 0 {
		from = t.active[last].to
	}
	t.active = append(t.active, activeExpert{record, from, from + n})
	t.counts[e] = from
}

// mapped runs experts that are in memory: gate and up of all pairs, then down and the sums, some columns at a time.
func (t *expertRun) mapped() (used ops.Usage) {
	for e, n := range t.counts {
		if n > 0 {
			record := t.experts.At(e)
			t.activate(e, record, n)
			used.Records++
			used.Bytes += int64(record.Bytes())
		}
	}
	s := t.spans()
	experts := t.locateAll(t.active, &s)
	pairs, width := t.total(), t.y.Cols
	columns := columnsAtOnce(pairs, width)
	inside, up, out := t.take(4*pairs*t.inner()), t.take(4*pairs*t.inner()), t.take(4*pairs*columns)
	if t.failed() {
		return ops.Usage{}
	}
	t.place()
	groups := t.groups(experts)
	for i := range groups {
		t.gateUp(&groups[i], inside, up)
	}
	for from := 0; from < width; from += columns {
		to := min(from+columns, width)
		for i := range groups {
			t.product(&groups[i], down, product{y: out, x: inside, from: from, to: to})
		}
		t.sum(out, from, to)
	}
	if t.failed() {
		return ops.Usage{}
	}
	return used
}

// gateUp computes the activations of a group's pairs: inside [pairs, Inner].
func (t *expertRun) gateUp(g *expertGroup, inside, up region) {
	skip := 4 * (g.from - g.base) * t.inner()
	if few(t.x.Rows) && g.parts[gate].constants == g.parts[upper].constants {
		t.fewInside(g, inside.plus(skip))
		return
	}
	t.product(g, gate, product{y: inside, x: at(t.x), gather: true, to: t.inner()})
	t.product(g, upper, product{y: up, x: at(t.x), gather: true, to: t.inner()})
	n := (g.to - g.from) * t.inner()
	dispatch(t.encoding, moeActivate, shaders.ActivateParams{Count: uint32(n)}, launch{
		buffers: []region{shaders.ActivateGate: inside.plus(skip), shaders.ActivateUp: up.plus(skip)},
		groups:  over(n, shaders.BlockThreads), threads: shaders.BlockThreads,
	})
}

// product is one of the three products for a group's pairs, outputs [from, to).
type product struct {
	y, x     region // their first pair is the group's base
	gather   bool   // x is the rows of the chunk
	from, to int
}

// product encodes p.
func (t *expertRun) product(g *expertGroup, part int, p product) {
	in := t.x.Cols
	if part == down {
		in = t.inner()
	}
	params := shaders.ExpertParams{Inputs: uint32(in), From: uint32(p.from), To: uint32(p.to)}
	if p.gather {
		params.Gather = 1
	}
	m := &g.parts[part]
	if few(t.x.Rows) {
		t.fewProduct(g, m, p, in)
		return
	}
	gemm := moeGemmHalf
	if t.b.float32 {
		gemm = moeGemmFloat
	}
	dispatch(t.encoding, gemm, params, launch{
		buffers: []region{
			shaders.ExpertY: p.y, shaders.ExpertX: p.x, shaders.ExpertRows: t.rows.plus(4 * g.base), shaders.ExpertTiles: g.tiles,
			shaders.ExpertTable: m.table, shaders.ExpertData: m.data, shaders.ExpertScales: m.scales, shaders.ExpertBiases: m.biases,
		},
		constants: m.constants,
		groups:    metal.Size{X: blocks(p.to-p.from, shaders.TileOutputs), Y: g.count, Z: 1},
		threads:   shaders.TileThreads,
		work:      2 * float64(g.to-g.from) * float64(in) * float64(p.to-p.from),
	})
}

// sum sets columns [from, to) of y from the outputs of all slots, out [pairs, to-from].
func (t *expertRun) sum(out region, from, to int) {
	p := shaders.SumParams{
		Rows: uint32(t.y.Rows), Cols: uint32(t.y.Cols), Slots: uint32(t.route.k), From: uint32(from), Width: uint32(to - from),
	}
	dispatch(t.encoding, moeSum, p, launch{
		buffers: []region{shaders.SumY: at(t.y), shaders.SumX: out, shaders.SumPairs: t.pairs, shaders.SumWeight: t.route.weights},
		groups:  rowsBy(t.y.Rows, to-from, shaders.BlockThreads), threads: shaders.BlockThreads,
	})
}
