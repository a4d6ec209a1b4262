package stream

import "lector/engine/ops"

// layerResident is what Resident found out about a layer, as long as the table keeps its version.
type layerResident struct {
	version uint64
	experts []ops.Expert // nil where some are not there
}

var _ ops.Resident = (*records)(nil)

// Resident implements ops.Resident. Where a record was read ahead and no sweep has used it yet, the layer is to be swept.
func (r *records) Resident(used int) []ops.Expert {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active || r.ctx.Err() != nil {
		return nil
	}
	if s.resident == nil {
		s.resident = make([]layerResident, s.packed.Layers())
	}
	known := &s.resident[r.layer]
	if known.version != s.table.version {
		*known = layerResident{s.table.version, s.residentNow(r.layer)}
	}
	if known.experts != nil {
		s.stats.Hits += used
	}
	return known.experts
}

func (s *Store) residentNow(layer int) []ops.Expert {
	experts := make([]ops.Expert, s.packed.Experts(layer))
	for e := range experts {
		at := s.table.index[s.first[layer]+e]
		if at == none || s.table.slots[at].early {
			return nil
		}
		view, err := s.view(layer, e, s.slots.Mem[at])
		if err != nil {
			return nil // a sweep will say why
		}
		experts[e] = view
	}
	return experts
}
