package stream

import (
	"lector/engine/ops"
	"lector/engine/weights"
)

// Simulation counts what sweeps over a packed store would read, by the same plan and without reading.
type Simulation struct {
	packed *weights.Packed
	table  *table
	first  []int
	base   uint64
	stats  Stats
}

// Simulate is a store with so many slots, at least LeastSlots, of which ring pass records on.
func Simulate(p *weights.Packed, slots, ring int) *Simulation {
	slots = max(slots, LeastSlots(p))
	s := &Simulation{packed: p, table: newTable(slots, min(Options{Ring: ring}.RingOrDefault(), slots), Records(p))}
	n := 0
	for l := range p.Layers() {
		s.first = append(s.first, n)
		n += p.Experts(l)
	}
	return s
}

// Sweep counts one sweep of a layer.
func (s *Simulation) Sweep(layer int, recent bool, wants []ops.Want) {
	for _, k := range s.table.plan(order{wants, s.first[layer], s.packed.Experts(layer), recent, s.base}) {
		s.base = k.ticket
		if k.hit {
			s.stats.Hits++
			continue
		}
		s.stats.Records++
		s.stats.Bytes += int64(s.packed.ExpertBytes(layer, k.expert))
	}
}

// Stats is what was counted so far.
func (s *Simulation) Stats() Stats { return s.stats }
