package stream

import (
	"lector/engine/ops"
)

// Shapes says how many records there are and how long they are; *weights.Packed does.
type Shapes interface {
	Layers() int
	Experts(layer int) int
	ExpertBytes(layer, expert int) int
}

// Simulation counts what sweeps over stored records would read, by the same plan and without reading.
type Simulation struct {
	shapes Shapes
	table  *table
	first  []int
	base   uint64
	stats  Stats
}

// Simulate is a store with so many slots, at least as few as a store needs, of which ring pass records on.
func Simulate(shapes Shapes, slots, ring int) *Simulation {
	s := &Simulation{shapes: shapes}
	n := 0
	for l := range shapes.Layers() {
		s.first = append(s.first, n)
		n += shapes.Experts(l)
	}
	slots = max(slots, min(MinSlots, n))
	s.table = newTable(slots, min(Options{Ring: ring}.RingOrDefault(), slots), n)
	return s
}

// Sweep counts one sweep of a layer and returns its items, without records.
func (s *Simulation) Sweep(layer int, recent bool, wants []ops.Want) []ops.Item {
	var items []ops.Item
	for _, k := range s.table.plan(order{wants, s.first[layer], s.shapes.Experts(layer), recent, s.base}) {
		s.base = k.ticket
		items = append(items, ops.Item{Want: ops.Want{Expert: k.expert, Rows: k.rows}, Slot: int(k.slot), Ticket: k.ticket, Hit: k.hit})
		if k.hit {
			s.stats.Hits++
			continue
		}
		s.stats.Records++
		s.stats.Bytes += int64(s.shapes.ExpertBytes(layer, k.expert))
	}
	return items
}

// Stats is what was counted so far.
func (s *Simulation) Stats() Stats { return s.stats }
