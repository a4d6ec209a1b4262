package gpu

import (
	"unsafe"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	moeFew       kernel[shaders.ExpertFewParams] = "moe_few"
	moeFewInside kernel[shaders.ExpertFewParams] = "moe_few_inside"
	moeFewSum    kernel[shaders.ExpertFewParams] = "moe_few_sum"
)

// residentExperts is where all experts of a layer lie, for the device to look up by itself: then what few rows choose need
// not come to the host. held is what it was made of, so that its address is not used again.
type residentExperts struct {
	held  []ops.Expert
	parts [expertParts]groupPart
	whole bool // they lie in the same buffers and are stored alike
}

// resident runs the experts of few rows without waiting for their choice; false where some are not on the device, or are
// not stored alike. Which experts the rows have is not known then, but how many each of them has.
func (t *expertRun) resident() (used ops.Usage, done bool) {
	list, counted := t.allExperts()
	if len(list) == 0 {
		return used, false
	}
	all := t.residentOf(list)
	if all == nil || !all.whole {
		return used, false
	}
	t.added = t.shared != nil && t.shared.like(all, t.inner())
	inside := t.take(4 * (t.total() + t.x.Rows) * t.inner())
	p := shaders.ExpertFewParams{Experts: uint32(len(list)), Slots: uint32(t.route.k), Pairs: uint32(t.total())}
	t.insideOfAll(inside, p, all)
	t.sumOfAll(inside, p, all)
	if !counted {
		used = ops.Usage{Records: t.total(), Bytes: int64(t.total() * list[0].Bytes())}
	}
	return used, true
}

// insideOfAll computes the activations of all pairs, and behind them those of the shared expert where it is added.
func (t *expertRun) insideOfAll(y region, p shaders.ExpertFewParams, all *residentExperts) {
	g, u, ids := &all.parts[gate], &all.parts[upper], t.route.experts
	p.Inputs, p.Outputs = uint32(t.x.Cols), uint32(t.inner())
	buffers := make([]region, shaders.ExpertBiasesSharedUp+1)
	buffers[shaders.ExpertY], buffers[shaders.ExpertX], buffers[shaders.ExpertRows], buffers[shaders.ExpertIds] = y, at(t.x), ids, ids // rows are not listed
	items := t.bindPairs(buffers, g, u)
	dispatch(t.encoding, moeFewInside, p, launch{
		buffers: buffers, constants: g.constants,
		groups: metal.Size{X: vectorTiles(t.inner(), t.x.Cols, shaders.BlockThreads, shaders.FewPairs), Y: items, Z: 1}, threads: shaders.BlockThreads,
	})
}

// bindPairs binds gates and ups, and says how many rows of activations there are.
func (t *expertRun) bindPairs(buffers []region, g, u *groupPart) (items int) {
	buffers[shaders.ExpertTable], buffers[shaders.ExpertData], buffers[shaders.ExpertScales], buffers[shaders.ExpertBiases] = g.table, g.data, g.scales, g.biases
	buffers[shaders.ExpertTableUp], buffers[shaders.ExpertDataUp], buffers[shaders.ExpertScalesUp], buffers[shaders.ExpertBiasesUp] = u.table, u.data, u.scales, u.biases
	if t.added {
		bindInside(buffers, &t.shared.gate, &t.shared.up)
		return t.total() + t.x.Rows
	}
	bindInside(buffers, &stored{data: g.data, scales: g.scales, biases: g.biases}, &stored{data: u.data, scales: u.scales, biases: u.biases})
	return t.total()
}

// sumOfAll multiplies the activations with the last matrices, and adds up.
func (t *expertRun) sumOfAll(inside region, p shaders.ExpertFewParams, all *residentExperts) {
	d := &all.parts[down]
	last, score := stored{data: d.data, scales: d.scales, biases: d.biases}, t.route.weights // never read where nothing is added
	if t.added {
		p.Shared, last, score = 1, t.shared.down, t.shared.score
	}
	p.Inputs, p.Outputs = uint32(t.inner()), uint32(t.y.Cols)
	dispatch(t.encoding, moeFewSum, p, launch{
		buffers: []region{
			shaders.ExpertY: at(t.y), shaders.ExpertX: inside, shaders.ExpertIds: t.route.experts,
			shaders.ExpertTable: d.table, shaders.ExpertData: d.data, shaders.ExpertScales: d.scales, shaders.ExpertBiases: d.biases,
			shaders.ExpertWeight: t.route.weights, shaders.ExpertScore: score,
			shaders.ExpertDataShared: last.data, shaders.ExpertScalesShared: last.scales, shaders.ExpertBiasesShared: last.biases,
		},
		constants: d.constants,
		groups:    metal.Size{X: vectorTiles(t.y.Cols, t.inner(), simdWidth, shaders.FewDown), Y: t.y.Rows, Z: 1}, threads: shaders.FewSimds * simdWidth,
	})
}

// allExperts lists every expert of the layer where all are in memory; counted says that who holds them counts them.
func (t *expertRun) allExperts() (list []ops.Expert, counted bool) {
	if t.experts.Records != nil {
		if r, ok := t.experts.Records.(ops.Resident); ok {
			list = r.Resident(t.total())
		}
		return list, true
	}
	first := t.experts.At(0)
	if all := t.b.resident[unsafe.SliceData(first.Gate.Data)]; all != nil {
		return all.held, false
	}
	for e := range t.experts.N {
		list = append(list, t.experts.At(e))
	}
	return list, false
}

// residentOf finds all experts on the device, once: a list is known by the first expert's place.
func (t *expertRun) residentOf(list []ops.Expert) *residentExperts {
	key := unsafe.SliceData(list[0].Gate.Data)
	if all := t.b.resident[key]; all != nil && unsafe.SliceData(all.held) == unsafe.SliceData(list) {
		return all
	}
	all := &residentExperts{held: list}
	at := t.placeAll(list)
	if t.failed() {
		return nil
	}
	all.whole = len(at) > 0
	for part := 0; part < expertParts && all.whole; part++ {
		low, high := outermost(at, part)
		all.whole = alike(at, part) && reaches(low, high)
		if all.whole {
			all.parts[part] = groupPart{low.data, low.scales, low.biases, t.weight(bytesOf(tableOf(at, low, part))), low.constants}
		}
	}
	all.whole = all.whole && all.parts[gate].constants == all.parts[upper].constants
	t.b.resident[key] = all
	return all
}

// placeAll locates the experts; none where some are not on the device in one piece.
func (t *expertRun) placeAll(list []ops.Expert) []placed {
	var s spans
	if t.experts.Records == nil {
		s = t.spans()
		for part := range s {
			if s[part][0].base == nil {
				return nil
			}
		}
	}
	active := make([]activeExpert, len(list))
	for i := range list {
		if t.b.choices.stale(list[i].Gate.Data) {
			return nil
		}
		active[i].Expert = list[i]
	}
	return t.locateAll(active, &s)
}

// fewProduct encodes p for a group's pairs, one after the other.
func (t *expertRun) fewProduct(g *expertGroup, m *groupPart, p product, in int) {
	params := shaders.ExpertFewParams{Inputs: uint32(in), From: uint32(p.from), Outputs: uint32(p.to - p.from), Experts: uint32(g.to - g.from), Slots: 1}
	x := p.x.plus(4 * (g.from - g.base) * in)
	if p.gather {
		params.Listed, x = 1, p.x
	}
	dispatch(t.encoding, moeFew, params, launch{
		buffers: []region{
			shaders.ExpertY: p.y.plus(4 * (g.from - g.base) * (p.to - p.from)), shaders.ExpertX: x, shaders.ExpertRows: t.rows.plus(4 * g.from),
			shaders.ExpertIds: g.ids, shaders.ExpertTable: m.table, shaders.ExpertData: m.data, shaders.ExpertScales: m.scales, shaders.ExpertBiases: m.biases,
		},
		constants: m.constants,
		groups:    metal.Size{X: vectorTiles(p.to-p.from, in, shaders.BlockThreads, shaders.FewAcross), Y: g.to - g.from, Z: 1}, threads: shaders.BlockThreads,
		work: 2 * float64(g.to-g.from) * float64(in) * float64(p.to-p.from),
	})
}

// fewInside computes the activations of a group's pairs at once, one after the other: its gates and ups are stored alike.
func (t *expertRun) fewInside(g *expertGroup, y region) {
	m, u, in := &g.parts[gate], &g.parts[upper], t.x.Cols
	pairs := uint32(g.to - g.from)
	params := shaders.ExpertFewParams{Inputs: uint32(in), Outputs: uint32(t.inner()), Experts: pairs, Slots: 1, Listed: 1, Pairs: pairs}
	buffers := make([]region, shaders.ExpertBiasesSharedUp+1)
	buffers[shaders.ExpertY], buffers[shaders.ExpertX], buffers[shaders.ExpertRows], buffers[shaders.ExpertIds] = y, at(t.x), t.rows.plus(4*g.from), g.ids
	t.bindPairs(buffers, m, u)
	dispatch(t.encoding, moeFewInside, params, launch{
		buffers:   buffers,
		constants: m.constants,
		groups:    metal.Size{X: vectorTiles(t.inner(), in, shaders.BlockThreads, shaders.FewPairs), Y: g.to - g.from, Z: 1}, threads: shaders.BlockThreads,
		work: 4 * float64(g.to-g.from) * float64(in) * float64(t.inner()),
	})
}
