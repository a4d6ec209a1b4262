package stream

import (
	"cmp"
	"slices"

	"lector/engine/ops"
)

// none stands for no record and for no slot.
const none = int32(-1)

// slot is what is known of one slot.
type slot struct {
	record int32  // which record is in it, or none
	last   uint64 // ticket of its last user
	rows   int    // of the last prefill chunk that went to the record
	early  bool   // the record was read ahead, and no sweep has used it yet
}

// table knows which record is in which slot. Slots [0, ring) pass records on, slots [ring, limit) keep them; the
// index lists both, since a record stays usable until it is overwritten.
type table struct {
	slots []slot
	ring  int
	limit int
	index []int32 // by record: its slot, or none

	version uint64 // grows when a record changes its place, or stops being early
}

func newTable(slots, ring, records int) *table {
	t := &table{slots: make([]slot, slots), ring: ring, limit: slots, index: make([]int32, records), version: 1}
	for i := range t.slots {
		t.slots[i].record = none
	}
	for i := range t.index {
		t.index[i] = none
	}
	return t
}

// assign puts a record into a slot's entry; what was there leaves the index.
func (t *table) assign(s int32, record int32) {
	t.evict(s)
	t.slots[s].record = record
	t.index[record] = s
	t.version++
}

// evict empties a slot's entry.
func (t *table) evict(s int32) {
	if old := t.slots[s].record; old != none {
		t.index[old] = none
		t.slots[s].record = none
		t.slots[s].early = false
		t.version++
	}
}

// task is an item of a sweep with what its reading waits for.
type task struct {
	expert, rows int
	record       int32
	slot         int32
	ticket       uint64
	after        uint64 // ticket of the slot's last user before
	hit          bool
	early        bool // a hit that was read ahead for this sweep
}

// order is a sweep to plan: the wanted experts of the layer whose records start at first, of n.
type order struct {
	wants  []ops.Want
	first  int // number of the layer's record 0
	n      int // records of the layer
	recent bool
	base   uint64 // ticket before the first
}

// plan decides every item's slot: records that are there come first, then the others by their place in the file.
// It enters them into the index.
func (t *table) plan(o order) []task {
	tasks := make([]task, 0, len(o.wants))
	for _, w := range o.wants {
		record := int32(o.first + w.Expert)
		k := task{expert: w.Expert, rows: w.Rows, record: record, slot: t.index[record], hit: t.index[record] != none}
		k.early = k.hit && t.slots[k.slot].early
		tasks = append(tasks, k)
	}
	slices.SortFunc(tasks, func(a, b task) int {
		if a.hit != b.hit {
			return cmp.Compare(b2i(b.hit), b2i(a.hit))
		}
		return cmp.Compare(a.expert, b.expert)
	})
	if !o.recent {
		t.rank(o)
	}
	for i := range tasks {
		tasks[i].ticket = o.base + uint64(i) + 1
		if s := tasks[i].slot; s != none {
			t.use(&tasks[i])
		}
	}
	t.admit(tasks, o)
	for i := range tasks {
		if tasks[i].slot == none { // not worth keeping
			tasks[i].slot = t.oldest()
			t.use(&tasks[i])
		}
	}
	return tasks
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// use makes a task the last user of its slot.
func (t *table) use(k *task) {
	s := &t.slots[k.slot]
	k.after = s.last
	if s.record != k.record {
		t.assign(k.slot, k.record)
	}
	if s.early {
		t.version++
	}
	s.last, s.early = k.ticket, false
	s.rows = max(s.rows*b2i(k.hit), k.rows)
}

// rank forgets how many rows went to the layer's records in the chunk before: those of this one count.
func (t *table) rank(o order) {
	for _, s := range t.index[o.first : o.first+o.n] {
		if s != none {
			t.slots[s].rows = 0
		}
	}
}

// admit gives slots of the pool to the records that are to stay: free slots first, then, by recency, those of the
// records that were not used for the longest time, or, by rows, those of records with fewer rows.
func (t *table) admit(tasks []task, o order) {
	var misses []*task
	for i := range tasks {
		if !tasks[i].hit {
			misses = append(misses, &tasks[i])
		}
	}
	if len(misses) == 0 || t.limit <= t.ring {
		return
	}
	slices.SortStableFunc(misses, func(a, b *task) int { return cmp.Compare(b.rows, a.rows) })
	victims := t.victims(o)
	for i, k := range misses {
		if i >= len(victims) {
			return
		}
		v := &t.slots[victims[i]]
		if v.record != none && !o.recent && k.rows <= v.rows {
			return
		}
		k.slot = victims[i]
		t.use(k)
	}
}

// victims lists the pool's slots that no item of this sweep uses, those to give away first in front.
func (t *table) victims(o order) []int32 {
	var list []int32
	for s := t.ring; s < t.limit; s++ {
		if t.slots[s].last <= o.base {
			list = append(list, int32(s))
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int {
		x, y := &t.slots[a], &t.slots[b]
		if (x.record == none) != (y.record == none) {
			return cmp.Compare(b2i(y.record == none), b2i(x.record == none))
		}
		if !o.recent && x.rows != y.rows {
			return cmp.Compare(x.rows, y.rows)
		}
		return cmp.Compare(x.last, y.last)
	})
	return list
}

// oldest is the slot of the ring whose last user was the earliest. With a ring of R slots that user's ticket is at
// least R below the next one.
func (t *table) oldest() int32 {
	best := int32(0)
	for s := range int32(t.ring) {
		if t.slots[s].last < t.slots[best].last {
			best = s
		}
	}
	return best
}

// ringByAge lists the slots of the ring by their last users, the earliest first, without those that hold one of the
// records [from, to).
func (t *table) ringByAge(from, to int) (list []int32) {
	for s := range int32(t.ring) {
		if r := int(t.slots[s].record); r < from || r >= to {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(t.slots[a].last, t.slots[b].last) })
	return list
}

// shrink or grow the table to limit slots; the slots that fall out are emptied and returned.
func (t *table) resize(limit int) (dropped []int) {
	for s := limit; s < t.limit; s++ {
		t.evict(int32(s))
		dropped = append(dropped, s)
	}
	t.limit = limit
	return dropped
}
