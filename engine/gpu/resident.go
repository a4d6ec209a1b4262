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
	k, pairs := t.route.k, t.total()
	inside := t.take(4 * pairs * t.inner())
	p := shaders.ExpertFewParams{Inputs: uint32(t.x.Cols), Outputs: uint32(t.inner()), Experts: uint32(len(list)), Slots: uint32(k)}
	g, u, d := &all.parts[gate], &all.parts[upper], &all.parts[down]
	ids := t.route.experts
	dispatch(t.encoding, moeFewInside, p, launch{
		buffers: []region{
			shaders.ExpertY: inside, shaders.ExpertX: at(t.x), shaders.ExpertRows: ids, shaders.ExpertIds: ids, // rows are not listed
			shaders.ExpertTable: g.table, shaders.ExpertData: g.data, shaders.ExpertScales: g.scales, shaders.ExpertBiases: g.biases,
			shaders.ExpertTableUp: u.table, shaders.ExpertDataUp: u.data, shaders.ExpertScalesUp: u.scales, shaders.ExpertBiasesUp: u.biases,
		},
		constants: g.constants,
		groups:    metal.Size{X: vectorTiles(t.inner(), t.x.Cols, shaders.BlockThreads, shaders.FewPairs), Y: pairs, Z: 1}, threads: shaders.BlockThreads,
	})
	p.Inputs, p.Outputs = uint32(t.inner()), uint32(t.y.Cols)
	dispatch(t.encoding, moeFewSum, p, launch{
		buffers: []region{
			shaders.ExpertY: at(t.y), shaders.ExpertX: inside, shaders.ExpertIds: ids,
			shaders.ExpertTable: d.table, shaders.ExpertData: d.data, shaders.ExpertScales: d.scales, shaders.ExpertBiases: d.biases,
			shaders.ExpertWeight: t.route.weights,
		},
		constants: d.constants,
		groups:    metal.Size{X: vectorTiles(t.y.Cols, t.inner(), simdWidth, shaders.FewDown), Y: t.y.Rows, Z: 1}, threads: shaders.FewSimds * simdWidth,
	})
	if !counted {
		used = ops.Usage{Records: pairs, Bytes: int64(pairs * list[0].Bytes())}
	}
	return used, true
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
	params := shaders.ExpertFewParams{Inputs: uint32(in), Outputs: uint32(t.inner()), Experts: uint32(g.to - g.from), Slots: 1, Listed: 1}
	dispatch(t.encoding, moeFewInside, params, launch{
		buffers: []region{
			shaders.ExpertY: y, shaders.ExpertX: at(t.x), shaders.ExpertRows: t.rows.plus(4 * g.from), shaders.ExpertIds: g.ids,
			shaders.ExpertTable: m.table, shaders.ExpertData: m.data, shaders.ExpertScales: m.scales, shaders.ExpertBiases: m.biases,
			shaders.ExpertTableUp: u.table, shaders.ExpertDataUp: u.data, shaders.ExpertScalesUp: u.scales, shaders.ExpertBiasesUp: u.biases,
		},
		constants: m.constants,
		groups:    metal.Size{X: vectorTiles(t.inner(), in, shaders.BlockThreads, shaders.FewPairs), Y: g.to - g.from, Z: 1}, threads: shaders.BlockThreads,
		work: 4 * float64(g.to-g.from) * float64(in) * float64(t.inner()),
	})
}
