package stream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"lector/engine/weights"
)

// Rows are gathered rows of an n-gram table: the distinct ones, as shards of Each rows, one for each precision that the
// table has. IDs are the ids that were asked for, renumbered to this smaller table.
type Rows struct {
	Shards []weights.Tensor // [Each, dim]; views until the next gathering
	Each   int
	IDs    []int64
}

// Gathering reads rows of an n-gram table in the background.
type Gathering struct {
	store  *Store
	table  int
	rows   Rows
	ids    []int64 // distinct, ascending
	places []int64 // their numbers in the smaller table
	shards []shard
	ctx    context.Context
	cancel context.CancelCauseFunc
	lanes  sync.WaitGroup
	next   atomic.Int64
	ended  bool
}

// shard is one precision's rows in the smaller table, and their widths.
type shard struct {
	tensor      weights.Tensor
	codes, side int
}

// gatherMemory is what gatherings work in. It only grows.
type gatherMemory struct {
	distinct, places, ids []int64
	data, record          []byte
}

// GatherBytes bounds what a gathering of n row ids of a packed table takes.
func GatherBytes(p *weights.Packed, table, n int) int {
	return n*(p.NgramRowBytes(table)*len(formats(p, table))+3*8) + rowLanes*p.NgramRowBytes(table)
}

// formats lists the distinct precisions of a table.
func formats(p *weights.Packed, table int) []weights.PackedMatrix {
	var list []weights.PackedMatrix
	for _, m := range p.Manifest().Ngram[table].Formats {
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// Gather starts to read the rows of the table of PLE layer `table`, each once. The ids are copied. One gathering of
// a table at a time: End the one before first.
func (s *Store) Gather(ctx context.Context, table int, ids []int64) *Gathering {
	g := &Gathering{store: s, table: table}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	g.number(ids)
	g.allocate()
	if !g.atHand() {
		for range min(rowLanes, len(g.ids)) {
			g.lanes.Go(g.lane)
		}
	}
	return g
}

// atHand reads few rows where the system holds them in memory, and says whether those were all: a token's rows are there sooner than lanes
// that would read them are awake.
func (g *Gathering) atHand() bool {
	s := g.store
	if s.rows == nil || len(g.ids) > rowLanes {
		return false
	}
	m := &s.gather[g.table]
	size := s.packed.NgramRowBytes(g.table)
	m.record = slices.Grow(m.record[:0], size)[:size]
	for i, id := range g.ids {
		if !readCached(s.rows, m.record, s.packed.NgramRowOffset(g.table, id)) {
			return false
		}
		if err := g.keep(m.record, id, int(g.places[i])); err != nil {
			g.cancel(err)
			return true
		}
		g.next.Store(int64(i + 1))
	}
	return true
}

// number lists the distinct ids and where each goes: rows of the f-th precision stand from f*Each on.
func (g *Gathering) number(ids []int64) {
	m, p := &g.store.gather[g.table], g.store.packed
	m.distinct = append(m.distinct[:0], ids...)
	slices.Sort(m.distinct)
	g.ids = slices.Compact(m.distinct)
	list := formats(p, g.table)
	counts := make([]int64, len(list))
	m.places = slices.Grow(m.places[:0], len(g.ids))[:len(g.ids)]
	for i, id := range g.ids {
		f := max(0, slices.Index(list, p.NgramFormat(g.table, id)))
		m.places[i] = int64(f)<<48 | counts[f]
		counts[f]++
	}
	g.rows.Each = int(slices.Max(counts))
	for i, at := range m.places {
		m.places[i] = at>>48*int64(g.rows.Each) + at&(1<<48-1)
	}
	g.places = m.places
	m.ids = slices.Grow(m.ids[:0], len(ids))[:len(ids)]
	for i, id := range ids {
		at, _ := slices.BinarySearch(g.ids, id)
		m.ids[i] = g.places[at]
	}
	g.rows.IDs = m.ids
}

// allocate lays the smaller table out: for each precision codes, scales and biases.
func (g *Gathering) allocate() {
	m, p := &g.store.gather[g.table], g.store.packed
	t := &p.Manifest().Ngram[g.table]
	total := 0
	list := formats(p, g.table)
	for _, f := range list {
		codes, side := f.RowBytes(t.Dim)
		g.shards = append(g.shards, shard{codes: codes, side: side})
		total += g.rows.Each * (codes + 2*side)
	}
	m.data = slices.Grow(m.data[:0], total)[:total]
	rest := m.data
	cut := func(n int) []byte {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	for i, f := range list {
		s := &g.shards[i]
		s.tensor = weights.Tensor{
			Name: t.Layer + ": n-gram rows", Stored: weights.PackedNgramFile,
			DType: f.DType, Shape: []int{g.rows.Each, t.Dim}, Data: cut(g.rows.Each * s.codes),
		}
		if s.side > 0 {
			s.tensor.Quant = &weights.Quant{Bits: f.Bits, Group: f.Group, Side: f.Side, Scales: cut(g.rows.Each * s.side), Biases: cut(g.rows.Each * s.side)}
		}
		g.rows.Shards = append(g.rows.Shards, s.tensor)
	}
}

// lane reads one row after another.
func (g *Gathering) lane() {
	record := make([]byte, g.store.packed.NgramRowBytes(g.table))
	for g.ctx.Err() == nil {
		i := int(g.next.Add(1)) - 1
		if i >= len(g.ids) {
			return
		}
		if err := g.read(record, g.ids[i], int(g.places[i])); err != nil {
			g.cancel(err)
			return
		}
	}
}

// read reads one row.
func (g *Gathering) read(record []byte, id int64, place int) error {
	s := g.store
	if n, err := s.ngram.ReadAt(record, s.packed.NgramRowOffset(g.table, id)); n < len(record) {
		return fmt.Errorf("%w: row %d of n-gram table %d in %s: %d of %d bytes came: %w", ErrRead, id, g.table, s.packed.Dir(), n, len(record), err)
	}
	return g.keep(record, id, place)
}

// keep brings a row that was read to its place.
func (g *Gathering) keep(record []byte, id int64, place int) error {
	row, err := g.store.packed.NgramRow(g.table, id, record)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	to, at := &g.shards[place/g.rows.Each], place%g.rows.Each
	copy(to.tensor.Data[at*to.codes:], row.Data)
	if q := to.tensor.Quant; q != nil {
		copy(q.Scales[at*to.side:], row.Quant.Scales)
		copy(q.Biases[at*to.side:], row.Quant.Biases)
	}
	return nil
}

// Wait returns the rows once all are there, or the first error. The rows stay until the next gathering.
func (g *Gathering) Wait() (Rows, error) {
	g.lanes.Wait()
	if err := context.Cause(g.ctx); err != nil {
		return Rows{}, err
	}
	return g.rows, nil
}

// End stops what is left of the gathering. Ending twice is harmless.
func (g *Gathering) End() {
	if g.ended {
		return
	}
	g.ended = true
	read := min(int(g.next.Load()), len(g.ids))
	g.cancel(ErrEnded)
	g.lanes.Wait()
	g.store.mu.Lock()
	g.store.stats.Rows += read
	g.store.mu.Unlock()
}
