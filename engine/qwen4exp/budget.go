package qwen4exp

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"lector/engine"
	"lector/engine/ops"
	"lector/engine/stream"
)

// budget shares Options.Memory. What a chunk and the ring of records need is set aside when the model is opened;
// sequences take from the rest, and the pool of resident records has what they leave.
type budget struct {
	total int64 // of Options.Memory, without what is beside it; 0: no bound
	chunk int64 // of the largest chunk
	slot  int64 // of one record, 0 where all weights are in memory
	ring  int64 // of the slots that records pass through

	mu     sync.Mutex
	states int64 // of live sequences
}

// chunkBytes is what a chunk of rows works in: the backend's memory, and gathered n-gram rows in the host's.
func (e *Engine) chunkBytes(rows int, views bool) int {
	total := e.ScratchBytes(rows, views)
	packed := e.checkpoint.Packed()
	for i := range e.net.layers {
		if p := e.net.layers[i].ple; p != nil && packed != nil {
			total += stream.GatherBytes(packed, p.stored, rows*len(p.hash.Vocab))
		}
	}
	return total
}

// share sets aside what chunks and the ring take, and opens the packed store.
func (e *Engine) share() error {
	b := &e.budget
	packed := e.checkpoint.Packed()
	ring, least, records := 0, 0, 0
	if packed != nil {
		records, least, b.slot = stream.Records(packed), stream.LeastSlots(packed), int64(stream.SlotBytes(packed))
		ring = max(least, min(e.opt.Stream.RingOrDefault(), records))
	}
	rest, err := e.afterFloor()
	if err != nil {
		return err
	}
	if b.total > 0 && b.slot > 0 {
		ring = max(least, min(ring, least+int(rest/4/b.slot)))
		rest -= int64(ring-least) * b.slot
	}
	e.maxRows = e.rowsLimit()
	if b.total == 0 {
		if e.maxRows, err = e.RowsFit(0, false); err != nil {
			return err
		}
	} else {
		share := int64(e.chunkBytes(1, false)) + rest/2
		e.maxRows = max(1, rowsFit(int(share), e.maxRows, func(rows int) int { return e.chunkBytes(rows, false) }))
	}
	b.chunk, b.ring = int64(e.chunkBytes(e.maxRows, false)), int64(ring)*b.slot
	if packed == nil {
		return nil
	}
	slots := records + ring // those of the ring hold what passes on, and with room for the others every record stays
	if b.total > 0 {
		slots = int(min(int64(slots), (b.total-b.chunk)/b.slot))
	}
	return e.openStore(max(slots, ring), ring)
}

// least is what the smallest budget that runs is made of: a chunk of one token, the state for it, and the fewest
// expert records that a ring passes on.
type least struct {
	chunk, state, ring int64
	records            int
	beside             int64 // of the rest of the process
}

func (l least) sum() int64 { return l.chunk + l.state + l.ring + l.beside }

func (e *Engine) least() (least, error) {
	l := least{chunk: int64(e.chunkBytes(1, false)), beside: int64(e.opt.Beside)}
	if packed := e.checkpoint.Packed(); packed != nil {
		l.records = stream.LeastSlots(packed)
		l.ring = int64(l.records) * int64(stream.SlotBytes(packed))
	}
	var err error
	l.state, err = e.stateBytes(1)
	return l, err
}

// LeastMemory is the smallest Options.Memory that runs, Options.Beside included. The dense weights are mapped, beside it.
func (e *Engine) LeastMemory() (int64, error) {
	l, err := e.least()
	return l.sum(), err
}

// afterFloor is what the budget leaves after the least that runs.
func (e *Engine) afterFloor() (int64, error) {
	memory := int64(e.opt.Memory)
	if memory == 0 {
		return 0, nil
	}
	l, err := e.least()
	if err != nil {
		return 0, err
	}
	if memory < l.sum() {
		return 0, fmt.Errorf("%w: the least that runs is %d bytes: %d for a chunk of one token, %d for its state, %d for %d expert records, %d for the rest of the process; the budget is %d: raise --memory",
			engine.ErrMemory, l.sum(), l.chunk, l.state, l.ring, l.records, l.beside, memory)
	}
	e.budget.total = memory - l.beside
	return memory - l.sum(), nil
}

func (e *Engine) openStore(slots, ring int) error {
	mem, err := e.be.AllocSlots(slots, int(e.budget.slot))
	if err != nil {
		return err
	}
	o := e.opt.Stream
	o.Ring, o.Arrange = ring, e.net.arrange
	_, o.Ahead = e.be.(ops.Late) // its sweeps go on while the next layer's mixer runs
	e.store, err = stream.Open(e.checkpoint.Packed(), mem, e.net.record, o)
	if err == nil {
		e.fitPool()
	}
	return err
}

// fitPool lets the pool of resident records have what the rest leaves.
func (e *Engine) fitPool() {
	if b := &e.budget; e.store != nil && b.total > 0 {
		e.store.Limit(int((b.total - b.chunk - b.states) / b.slot))
	}
}

// take reserves the state of a sequence.
func (e *Engine) take(capacity int) (int64, error) {
	b := &e.budget
	if b.total == 0 {
		return 0, nil
	}
	need, err := e.stateBytes(capacity)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if free := b.total - b.chunk - b.ring - b.states; need > free {
		return 0, fmt.Errorf("%w: a sequence of %d tokens needs %d bytes of state, %d are free: of the budget of %d, chunks of %d tokens take %d, the ring of expert records %d, other sequences %d, the rest of the process %d: raise --memory",
			engine.ErrMemory, capacity, need, max(0, free), e.opt.Memory, e.maxRows, b.chunk, b.ring, b.states, e.opt.Beside)
	}
	b.states += need
	e.fitPool()
	return need, nil
}

// giveBack ends a reservation.
func (e *Engine) giveBack(held int64) {
	b := &e.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.states -= held
	e.fitPool()
}

// rowsLimit caps a chunk where memory does not.
func (e *Engine) rowsLimit() int {
	return min(e.checkpoint.Config().MaxTokens, cmp.Or(e.opt.MaxRows, MaxRows))
}

// RowsFit is the largest chunk whose work fits budget bytes (0: the engine's own share, or without one what the device
// recommends to hold); views counts the logits of every row.
func (e *Engine) RowsFit(budget int, views bool) (int, error) {
	limit := e.rowsLimit()
	if budget == 0 {
		budget = int(e.budget.chunk)
		if e.budget.total == 0 {
			if budget = int(e.room()); budget == 0 {
				return limit, nil
			}
		}
	}
	rows := rowsFit(budget, limit, func(rows int) int { return e.chunkBytes(rows, views) })
	if rows == 0 {
		return 0, fmt.Errorf("%w: a chunk of one token needs %d bytes, there are %d: raise --memory",
			engine.ErrMemory, e.chunkBytes(1, views), budget)
	}
	return rows, nil
}

// room is what the device recommends for chunks: what it has left, and what a chunk's scratch holds already. 0: it
// recommends nothing.
func (e *Engine) room() int64 {
	own, ok := e.be.(ops.Scratch)
	if !ok {
		return 0
	}
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	room := own.Room()
	if room > 0 && e.scratch.rows > 0 {
		room += int64(e.ScratchBytes(e.scratch.rows, false))
	}
	return room
}

// read is what was read from storage so far.
func (e *Engine) read() stream.Stats {
	if e.store == nil {
		return stream.Stats{}
	}
	return e.store.Stats()
}

// storageError marks what the reader reports, for those who decide by it.
func storageError(err error) error {
	if errors.Is(err, stream.ErrRead) || errors.Is(err, stream.ErrRecord) {
		return fmt.Errorf("%w: %w", engine.ErrStorage, err)
	}
	return err
}

// stateBytes is what a sequence of a capacity holds: the layout is that of newState and reserve.
func (e *Engine) stateBytes(capacity int) (int64, error) {
	be := &tally{Backend: e.be}
	st, err := newState(be, e.net)
	if err != nil {
		return 0, err
	}
	rows := capacity + engine.MaxDrafts
	err = st.reserve(be, &e.net.dims, rows, rows)
	return be.bytes, err
}

// tally is a backend that counts allocations and makes none.
type tally struct {
	ops.Backend
	bytes int64
}

func (t *tally) Alloc(rows, cols int) (ops.Tensor, error) {
	t.bytes += int64(pages(t.Backend, rows*cols*4))
	return ops.Tensor{Rows: rows, Cols: cols}, nil
}
