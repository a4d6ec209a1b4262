package gpu

import (
	"math"
	"unsafe"

	"lector/engine/ops"
	"lector/shaders"
)

// The matrices of an expert, as parts of a group.
const (
	gate = iota
	upper
	down
	expertParts
)

// expertGroup is the experts that one dispatch a product serves: stored in one way, in the same buffers, and of bounded
// work. Pairs [from, to) of the chunk go to them.
type expertGroup struct {
	base, from, to int // base: the pair that is row 0 of the memory for activations and outputs
	tiles          region
	count          int    // of tiles
	ids            region // instead of tiles where the rows are few
	parts          [expertParts]groupPart
}

// groupPart is one matrix of all experts of a group: where it lies from the bound regions on.
type groupPart struct {
	data, scales, biases region
	table                region // [experts, 3], offsets in bytes
	constants            constants
}

// placed is an active expert's matrices on the device.
type placed struct {
	activeExpert
	parts [expertParts]stored
}

// locateAll finds the matrices of active experts on the device, or puts them there.
func (t *expertRun) locateAll(active []activeExpert, s *spans) []placed {
	all := make([]placed, len(active))
	for i := range active {
		all[i].activeExpert = active[i]
		for part, m := range []*ops.Matrix{&active[i].Gate, &active[i].Up, &active[i].Down} {
			all[i].parts[part] = t.locate(m, s, part)
		}
	}
	return all
}

// groups cuts experts into groups. The tiles count pairs from the first expert's on.
func (t *expertRun) groups(experts []placed) (all []expertGroup) {
	first, work := 0, 0.0
	for i := range experts {
		next := &experts[i]
		cost := 2 * float64(next.to-next.from) * float64(t.x.Cols*t.inner())
		if i > first && (work+cost > expertWork || !together(experts[first:i], next)) {
			all = append(all, t.group(experts[first:i], experts[0].from))
			first, work = i, 0
		}
		work += cost
	}
	return append(all, t.group(experts[first:], experts[0].from))
}

// together says that an expert fits into the group of those before it: offsets are of 32 bits.
func together(group []placed, next *placed) bool {
	for part := range expertParts {
		b := &next.parts[part]
		if !group[0].parts[part].alike(b) {
			return false
		}
		low, high := outermost(group, part)
		if !reaches(low.lower(b), high.upper(b)) {
			return false
		}
	}
	return true
}

// alike says that two matrices are stored in one way and in the same buffers.
func (s *stored) alike(o *stored) bool {
	return s.constants == o.constants && s.data.buf == o.data.buf && s.scales.buf == o.scales.buf && s.biases.buf == o.biases.buf
}

// alike says it of one matrix of all experts.
func alike(experts []placed, part int) bool {
	for i := range experts {
		if !experts[0].parts[part].alike(&experts[i].parts[part]) {
			return false
		}
	}
	return true
}

// outermost are the beginnings of a matrix of the experts, which lie in the same buffers.
func outermost(experts []placed, part int) (low, high stored) {
	low, high = experts[0].parts[part], experts[0].parts[part]
	for i := range experts {
		low, high = low.lower(&experts[i].parts[part]), high.upper(&experts[i].parts[part])
	}
	return low, high
}

// reaches says that 32 bits hold what lies between two beginnings.
func reaches(low, high stored) bool {
	return max(high.data.off-low.data.off, high.scales.off-low.scales.off, high.biases.off-low.biases.off) <= math.MaxUint32
}

// tableOf lists where a matrix of each expert lies from the lowest on.
func tableOf(experts []placed, low stored, part int) []uint32 {
	table := make([]uint32, 0, 3*len(experts))
	for i := range experts {
		m := &experts[i].parts[part]
		table = append(table, uint32(m.data.off-low.data.off), uint32(m.scales.off-low.scales.off), uint32(m.biases.off-low.biases.off))
	}
	return table
}

// lower and upper are the outermost beginnings of two matrices in the same buffers.
func (s stored) lower(o *stored) stored {
	s.data.off, s.scales.off, s.biases.off = min(s.data.off, o.data.off), min(s.scales.off, o.scales.off), min(s.biases.off, o.biases.off)
	return s
}

func (s stored) upper(o *stored) stored {
	s.data.off, s.scales.off, s.biases.off = max(s.data.off, o.data.off), max(s.scales.off, o.scales.off), max(s.biases.off, o.biases.off)
	return s
}

// group writes the tables of a group.
func (t *expertRun) group(experts []placed, base int) expertGroup {
	g := expertGroup{base: base, from: experts[0].from, to: experts[len(experts)-1].to}
	for part := range expertParts {
		low, _ := outermost(experts, part)
		g.parts[part] = groupPart{low.data, low.scales, low.biases, upload(t.encoding, tableOf(experts, low, part)), low.constants}
	}
	if few(t.x.Rows) {
		g.ids = upload(t.encoding, idsOf(experts))
		return g
	}
	tiles := tilesOf(experts, base)
	g.tiles, g.count = upload(t.encoding, tiles), len(tiles)/3
	return g
}

// idsOf lists the expert of the group for each of its pairs.
func idsOf(experts []placed) (ids []uint32) {
	for i := range experts {
		for range experts[i].to - experts[i].from {
			ids = append(ids, uint32(i))
		}
	}
	return ids
}

// tilesOf cuts every expert's pairs into tiles: expert of the group, first pair, pairs.
func tilesOf(experts []placed, base int) (tiles []uint32) {
	for i := range experts {
		for from := experts[i].from; from < experts[i].to; from += shaders.TileRows {
			n := min(experts[i].to-from, shaders.TileRows)
			tiles = append(tiles, uint32(i), uint32(from-base), uint32(n))
		}
	}
	return tiles
}

// spans are, for data, scales and biases of every matrix, the mapped memory from the first expert's to the last one's:
// one buffer over it serves all experts of the layer.
type spans [expertParts][3]mappedSpan

type mappedSpan struct {
	base   *byte // of the region
	n      int
	region region
}

// spans finds the memory that holds the layer's experts; an empty one where they are not in one piece of it.
func (t *expertRun) spans() (s spans) {
	var parts [expertParts][3][][]byte
	for e := range t.experts.N {
		record := t.experts.At(e)
		for part, m := range []*ops.Matrix{&record.Gate, &record.Up, &record.Down} {
			for i, data := range [][]byte{m.Data, m.Scales, m.Biases} {
				if len(data) > 0 {
					parts[part][i] = append(parts[part][i], data)
				}
			}
		}
	}
	for part := range parts {
		for i := range parts[part] {
			s[part][i] = t.span(parts[part][i])
		}
	}
	return s
}

// span puts the mapped memory around all of list on the device.
func (t *expertRun) span(list [][]byte) mappedSpan {
	if len(list) == 0 {
		return mappedSpan{}
	}
	w := &t.b.weights
	first, low := w.around(list[0])
	high := low
	for _, data := range list {
		whole, from := w.around(data)
		if whole == nil || unsafe.SliceData(whole) != unsafe.SliceData(first) || from%storedAlign != 0 {
			return mappedSpan{}
		}
		low, high = min(low, from), max(high, from+len(data))
	}
	if most := t.b.device.Properties().MaxBufferBytes; most > 0 && int64(high-low+t.b.page) > most {
		return mappedSpan{}
	}
	return mappedSpan{unsafe.SliceData(first[low:]), high - low, t.weight(first[low:high])}
}

// locate finds a matrix on the device: in a slot, in a span, or by itself.
func (t *expertRun) locate(m *ops.Matrix, s *spans, part int) stored {
	find := func(data []byte, i int) region {
		if r, ok := t.b.choices.slot(data); ok {
			return r
		}
		if sp := &s[part][i]; sp.base != nil {
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(sp.base)); at+uintptr(len(data)) <= uintptr(sp.n) {
				return sp.region.plus(int(at))
			}
		}
		return t.weight(data)
	}
	r := stored{data: find(m.Data, 0), constants: formatOf(m)}
	r.scales, r.biases = r.data, r.data
	if m.Format == ops.Affine {
		r.scales, r.biases = find(m.Scales, 1), find(m.Biases, 2)
	}
	return r
}
