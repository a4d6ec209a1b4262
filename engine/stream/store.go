package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"lector/engine/ops"
	"lector/engine/weights"
)

const (
	// RingSlots is how many slots records pass through unless Options say otherwise.
	RingSlots = 64
	// MinSlots are two groups of eight: one is read while the other is used.
	MinSlots = 16
	// readLanes is how many records are read at once: disks are at their best from four or eight large reads on.
	readLanes = 8
	// rowLanes is how many n-gram rows are read at once. They are small, so that latency decides.
	rowLanes = 32
)

// Options are the settings of a Store. None of them changes a bit of any result.
type Options struct {
	Ring  int // slots that records pass through; 0: RingSlots
	Lanes int // records read at once; 0: a usual number
	// Ahead lets a sweep read for the next layer while it is not ended, by what the chunk before wanted there: for a
	// backend that ends a sweep long after it has all its records.
	Ahead bool
	// Arrange changes a record where it lies, once it is read and its checksum is right; nil: nothing does.
	Arrange func(layer, expert int, record []byte) error
	// Wrap stands between the store and its files, to count reads or to make them fail; nil: nothing does. It gets the
	// base name of a file and what reads it.
	Wrap func(file string, r io.ReaderAt) io.ReaderAt
}

// RingOrDefault is how many slots records pass through where memory and records allow it.
func (o Options) RingOrDefault() int {
	if o.Ring <= 0 {
		return RingSlots
	}
	return max(o.Ring, MinSlots)
}

// View makes operands of a record's bytes: views of it.
type View func(layer, expert int, record []byte) (ops.Expert, error)

// Store reads the records and rows of a packed store.
type Store struct {
	packed  *weights.Packed
	view    View
	arrange func(layer, expert int, record []byte) error
	lanes   int
	experts io.ReaderAt
	ngram   io.ReaderAt
	rows    *os.File // the same, where it is a file; else nil
	files   []io.Closer
	first   []int // by layer: number of its record 0
	records int
	size    int // bytes of a slot

	slots         ops.Slots
	fetched, done ops.Event
	counts        bool // done is ours to signal
	base          uint64
	freed         uint64 // tickets that nobody uses any more, whatever the counters say

	mu     sync.Mutex
	table  *table
	limit  int // what Limit asked for
	active bool
	stats  Stats

	ahead bool
	used  [][]int32 // by layer and expert: rows of the last chunk, to read ahead by

	gather []gatherMemory // by table

	resident []layerResident // by layer
}

// Stats counts what was read so far.
type Stats struct {
	Records  int           // expert records read
	Bytes    int64         // of them, without padding
	Hits     int           // expert records that were wanted and were in a slot
	RingWait time.Duration // at least one lane waited for a slot
	Rows     int           // n-gram rows read
}

// Sub is what was read since before.
func (s Stats) Sub(before Stats) Stats {
	return Stats{s.Records - before.Records, s.Bytes - before.Bytes, s.Hits - before.Hits, s.RingWait - before.RingWait, s.Rows - before.Rows}
}

// Records counts the expert records of a packed store.
func Records(p *weights.Packed) int {
	n := 0
	for l := range p.Layers() {
		n += p.Experts(l)
	}
	return n
}

// SlotBytes is the size of a slot: the longest record, up to whole pages.
func SlotBytes(p *weights.Packed) int {
	n := 0
	for l := range p.Layers() {
		n = max(n, p.RecordBytes(l))
	}
	return (n + PageBytes - 1) / PageBytes * PageBytes
}

// blocks rounds up to whole blocks of direct reads. Records are padded to a multiple of it.
func blocks(n int) int { return (n + directBlock - 1) / directBlock * directBlock }

// LeastSlots is how many slots a packed store needs to run.
func LeastSlots(p *weights.Packed) int { return min(MinSlots, Records(p)) }

// Open opens the files of a packed store for reading into slots, which it owns from then on, even if it fails. view
// makes operands of records. The packed store must outlive it.
func Open(p *weights.Packed, slots ops.Slots, view View, o Options) (*Store, error) {
	s := &Store{packed: p, view: view, arrange: o.Arrange, ahead: o.Ahead, used: make([][]int32, p.Layers()), slots: slots, fetched: slots.Fetched, done: slots.Done, size: SlotBytes(p), lanes: o.Lanes}
	if err := s.open(o); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s for reading: %w", p.Dir(), err), s.Close())
	}
	return s, nil
}

func (s *Store) open(o Options) error {
	s.gather = make([]gatherMemory, s.packed.NgramTables())
	for l := range s.packed.Layers() {
		s.first = append(s.first, s.records)
		s.records += s.packed.Experts(l)
	}
	if n := len(s.slots.Mem); n < LeastSlots(s.packed) {
		return fmt.Errorf("%d slots: at least %d", n, LeastSlots(s.packed))
	}
	for i, mem := range s.slots.Mem {
		if len(mem) < s.size {
			return fmt.Errorf("slot %d has %d bytes, a record takes %d", i, len(mem), s.size)
		}
	}
	if s.lanes <= 0 {
		s.lanes = readLanes
	}
	if s.fetched == nil {
		s.fetched = &Counter{}
	}
	if s.counts = s.done == nil; s.counts {
		s.done = &Counter{}
	}
	ring := min(o.RingOrDefault(), len(s.slots.Mem))
	s.table = newTable(len(s.slots.Mem), ring, s.records)
	s.limit = len(s.slots.Mem)
	return s.openFiles(o)
}

func (s *Store) openFiles(o Options) error {
	experts, err := OpenFile(filepath.Join(s.packed.Dir(), weights.PackedExpertsFile))
	if err != nil {
		return err
	}
	s.files = append(s.files, experts)
	ngram, err := os.Open(filepath.Join(s.packed.Dir(), weights.PackedNgramFile))
	if err != nil {
		return err
	}
	s.files = append(s.files, ngram)
	randomReads(ngram)
	s.experts, s.ngram = experts, ngram
	if o.Wrap != nil {
		s.experts, s.ngram = o.Wrap(weights.PackedExpertsFile, experts), o.Wrap(weights.PackedNgramFile, ngram)
	}
	s.rows, _ = s.ngram.(*os.File)
	return nil
}

// Close closes the files and gives the slots back. No sweep or gathering may be under way.
func (s *Store) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots.Release = nil // the memory may be another's from here on
	if s.slots.Free != nil {
		s.slots.Free()
		s.slots.Free = nil
	}
	return errors.Join(errs...)
}

// Ring is how many slots records pass through.
func (s *Store) Ring() int { return s.table.ring }

// Limit sets how many slots may hold records from the next sweep on, the ring's included: at least the ring, at most
// all. What is in the others is dropped.
func (s *Store) Limit(slots int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(s.table.ring, min(slots, len(s.slots.Mem)))
	if !s.active {
		s.resize()
	}
}

// resize brings the table to the limit. The caller holds the lock, and no sweep is under way.
func (s *Store) resize() {
	for _, i := range s.table.resize(s.limit) {
		if s.slots.Release != nil {
			s.slots.Release(i)
		}
	}
}

// Stats is what was read so far.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Layer is the records of a layer for one call of RunExperts, read within ctx. recent keeps what was used last, as
// decoding wants it; else those records stay that most rows of the chunk go to.
func (s *Store) Layer(ctx context.Context, layer int, recent bool) ops.Records {
	return &records{store: s, ctx: ctx, layer: layer, recent: recent}
}

// records implements ops.Records. It lives for one call, and so does the context in it.
type records struct {
	store  *Store
	ctx    context.Context
	layer  int
	recent bool
}
