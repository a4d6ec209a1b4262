package stream

import (
	"context"
	"sync/atomic"

	"lector/engine/ops"
)

// aheadRows is how many rows of the chunk before must have gone to a record for it to be read ahead: fewer say little
// about the next chunk, and a record that is not wanted was read for nothing.
const aheadRows = 4

// ahead is what a sweep's lanes read for the next layer, once their own records are there: the device still works on
// those, and then on the mixer in front of the next mixture, and the disk would stand still. Records go into slots of
// the ring whose users of this sweep are done, and what is there when the next sweep is planned is a hit.
type ahead struct {
	tasks  []task
	ready  []bool // guarded by the sweep's mu
	next   atomic.Int32
	ctx    context.Context
	cancel context.CancelFunc // nil where nothing is read ahead
}

// planAhead notes which records a chunk uses, and chooses what is read for the next layer. The caller holds the store's
// lock.
func (w *sweep) planAhead(recent bool, wants []ops.Want) {
	s := w.store
	if !s.ahead || recent {
		return
	}
	used := make([]int32, s.packed.Experts(w.layer))
	for _, want := range wants {
		used[want.Expert] = int32(want.Rows)
	}
	s.used[w.layer] = used
	if next := w.layer + 1; next < len(s.used) {
		w.ahead.tasks = s.table.planAhead(s.first[next], s.used[next])
	}
	if len(w.ahead.tasks) > 0 {
		w.ahead.ready = make([]bool, len(w.ahead.tasks))
		w.ahead.ctx, w.ahead.cancel = context.WithCancel(w.ctx)
	}
}

// planAhead gives slots of the ring, those that are free first in front, to the records from number first on that are
// not there and that so many rows went to.
func (t *table) planAhead(first int, rows []int32) (tasks []task) {
	slots := t.ringByAge(first, first+len(rows))
	for e, n := range rows {
		record := int32(first + e)
		if n < aheadRows || t.index[record] != none {
			continue
		}
		if len(tasks) == len(slots) {
			return tasks
		}
		at := slots[len(tasks)]
		tasks = append(tasks, task{expert: e, record: record, slot: at, after: t.slots[at].last})
		t.assign(at, record)
		t.slots[at].early = true
	}
	return tasks
}

// readAhead is what a lane does once the sweep's own records are taken. An error is nobody's yet: whoever wants the
// record reads it again.
func (w *sweep) readAhead() {
	s, a := w.store, &w.ahead
	for a.cancel != nil {
		i := int(a.next.Add(1)) - 1
		if i >= len(a.tasks) || a.ctx.Err() != nil {
			return
		}
		k := &a.tasks[i]
		if k.after > s.freed && s.done.Wait(a.ctx, k.after) != nil {
			return
		}
		if a.ctx.Err() != nil || s.fill(w.layer+1, k) != nil {
			return
		}
		w.mu.Lock()
		a.ready[i] = true
		w.stats.Records++
		w.stats.Bytes += int64(s.packed.ExpertBytes(w.layer+1, k.expert))
		w.mu.Unlock()
	}
}

// stop lets the lanes finish what they are reading and begin nothing more.
func (a *ahead) stop() {
	if a.cancel != nil {
		a.cancel()
	}
}

// settleAhead takes what did not come out of the index. The caller holds the store's lock, and no lane is under way.
func (w *sweep) settleAhead() {
	for i, k := range w.ahead.tasks {
		if t := w.store.table; !w.ahead.ready[i] && t.slots[k.slot].record == k.record {
			t.evict(k.slot)
		}
	}
}
