package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"lector/engine/ops"
)

// sweep implements ops.Sweep: it belongs to one user, and to its own lanes.
type sweep struct {
	store  *Store
	layer  int
	ctx    context.Context
	cancel context.CancelCauseFunc
	tasks  []task
	items  []ops.Item
	lanes  sync.WaitGroup
	ahead  ahead
	ended  bool

	mu      sync.Mutex
	next    int    // task that the next free lane takes
	ready   []bool // by task: the record is in its slot
	prefix  int    // so many tasks from the first on are ready
	err     error
	waiting int // lanes that wait for a slot
	since   time.Time
	stats   Stats
}

// Sweep implements ops.Records.
func (r *records) Sweep(wants []ops.Want) ops.Sweep {
	s := r.store
	w := &sweep{store: s, layer: r.layer}
	w.ctx, w.cancel = context.WithCancelCause(r.ctx)
	s.mu.Lock()
	if s.active {
		panic("stream: a sweep starts before the one before has ended")
	}
	s.active = true
	s.resize()
	w.tasks = s.table.plan(order{wants, s.first[r.layer], s.packed.Experts(r.layer), r.recent, s.base})
	w.planAhead(r.recent, wants)
	s.mu.Unlock()
	w.describe()
	w.start()
	return w
}

// describe makes the items that the user sees.
func (w *sweep) describe() {
	w.items, w.ready = make([]ops.Item, len(w.tasks)), make([]bool, len(w.tasks))
	for i, k := range w.tasks {
		view, err := w.store.view(w.layer, k.expert, w.store.slots.Mem[k.slot])
		if err != nil {
			w.fail(fmt.Errorf("%w: %w", ErrRecord, err))
		}
		w.items[i] = ops.Item{Want: ops.Want{Expert: k.expert, Rows: k.rows}, Slot: int(k.slot), Ticket: k.ticket, Hit: k.hit && !k.early, Record: view}
		w.ready[i] = k.hit
		if w.items[i].Hit {
			w.stats.Hits++
		}
	}
}

// start tells what is there already and sends the lanes off.
func (w *sweep) start() {
	w.mu.Lock()
	for w.next < len(w.tasks) && w.tasks[w.next].hit { // they come first
		w.next++
	}
	left := len(w.tasks) - w.next + len(w.ahead.tasks)
	w.advance()
	w.mu.Unlock()
	if w.ctx.Err() != nil {
		w.fail(context.Cause(w.ctx))
	}
	for range min(w.store.lanes, left) {
		w.lanes.Go(w.lane)
	}
}

// lane reads one record after another until none is left or the sweep has failed, then what the next layer may want.
func (w *sweep) lane() {
	defer w.readAhead()
	for {
		i, ok := w.take()
		if !ok {
			return
		}
		if err := w.read(&w.tasks[i]); err != nil {
			w.fail(err)
			return
		}
		w.mu.Lock()
		w.ready[i] = true
		w.stats.Records++
		w.stats.Bytes += int64(w.store.packed.ExpertBytes(w.layer, w.tasks[i].expert))
		w.advance()
		w.mu.Unlock()
	}
}

// take hands out the next task.
func (w *sweep) take() (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.next == len(w.tasks) {
		return 0, false
	}
	w.next++
	return w.next - 1, true
}

// advance signals the items that are ready together with all before them. The caller holds the lock, so that the
// counter has one writer.
func (w *sweep) advance() {
	if w.err != nil {
		return
	}
	before := w.prefix
	for w.prefix < len(w.tasks) && w.ready[w.prefix] {
		w.prefix++
	}
	if w.prefix > before {
		w.store.fetched.Signal(w.tasks[w.prefix-1].ticket)
	}
}

// fail ends the sweep with its first error. Every ticket is signalled: whoever waits for one goes on, and finds the error.
func (w *sweep) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.err = err
	w.cancel(err)
	if n := len(w.tasks); n > 0 {
		w.store.fetched.Signal(w.tasks[n-1].ticket)
	}
}

// read brings one record into its slot and compares its checksum.
func (w *sweep) read(k *task) error {
	if err := w.slotFree(k); err != nil {
		return err
	}
	return w.store.fill(w.layer, k)
}

// fill reads a task's record, compares its checksum and arranges it.
func (s *Store) fill(layer int, k *task) error {
	record := s.slots.Mem[k.slot][:blocks(s.packed.ExpertBytes(layer, k.expert))]
	n, err := s.experts.ReadAt(record, s.packed.RecordOffset(layer, k.expert))
	if errors.Is(err, io.EOF) && n == len(record) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%w: expert %d of layer %d in %s: %d of %d bytes came: %w", ErrRead, k.expert, layer, s.packed.Dir(), n, len(record), err)
	}
	if err = s.packed.VerifyRecord(layer, k.expert, record); err == nil && s.arrange != nil {
		err = s.arrange(layer, k.expert, record)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return nil
}

// slotFree waits until the slot's last user is done, and counts the time that the ring keeps the reader waiting.
func (w *sweep) slotFree(k *task) error {
	if k.after <= w.store.freed {
		return context.Cause(w.ctx)
	}
	w.mu.Lock()
	if w.waiting++; w.waiting == 1 {
		w.since = time.Now()
	}
	w.mu.Unlock()
	err := w.store.done.Wait(w.ctx, k.after)
	w.mu.Lock()
	if w.waiting--; w.waiting == 0 {
		w.stats.RingWait += time.Since(w.since)
	}
	w.mu.Unlock()
	if err == nil {
		err = context.Cause(w.ctx)
	}
	return err
}

// Items implements ops.Sweep.
func (w *sweep) Items() []ops.Item { return w.items }

// Wait implements ops.Sweep.
func (w *sweep) Wait(i int) error {
	if w.ended {
		return ErrEnded
	}
	if err := w.store.fetched.Wait(w.ctx, w.tasks[i].ticket); err != nil {
		w.fail(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Done implements ops.Sweep.
func (w *sweep) Done(i int) {
	if w.store.counts {
		w.store.done.Signal(w.tasks[i].ticket)
	}
}

// End implements ops.Sweep.
func (w *sweep) End() error {
	if w.ended {
		return w.err
	}
	w.ended = true
	w.ahead.stop()
	if w.ctx.Err() != nil {
		w.fail(context.Cause(w.ctx))
	}
	w.mu.Lock()
	whole := w.prefix == len(w.tasks)
	w.mu.Unlock()
	if !whole {
		w.fail(ErrEnded)
	}
	w.lanes.Wait()
	w.cancel(nil)
	w.settle()
	return w.err
}

// settle hands the slots back to the store: nobody uses them any more.
func (w *sweep) settle() {
	s := w.store
	if n := len(w.tasks); n > 0 {
		s.base = w.tasks[n-1].ticket
		s.fetched.Signal(s.base)
		if s.counts {
			s.done.Signal(s.base)
		}
	}
	s.freed = s.base
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range w.tasks {
		if !w.ready[i] && s.table.slots[k.slot].record == k.record {
			s.table.evict(k.slot)
		}
	}
	w.settleAhead()
	s.stats.Records += w.stats.Records
	s.stats.Bytes += w.stats.Bytes
	s.stats.Hits += w.stats.Hits
	s.stats.RingWait += w.stats.RingWait
	s.active = false
}
