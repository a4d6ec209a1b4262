package cpu

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"lector/engine/cpu/amx"
	"lector/engine/cpu/bfp"
	"lector/engine/cpu/fma"
	"lector/engine/ops"
	"lector/engine/stream"
)

// The numeric classes.
const (
	Rounded = "cpu-f32"         // every product is rounded before it is added
	Blocked = "cpu-f32-blocked" // products are fused with their addition, and some sums have lanes: about twice as fast
	AMX     = "cpu-amx"         // as Blocked, but for products with bf16 and affine weights, which tile registers compute
	BFP     = "cpu-bfp24"       // as Blocked, but for products with affine weights, which are sums of integers: faster where a token is read at a time
)

// Classes are the numeric classes that a Backend can compute.
func Classes() []string { return []string{Rounded, Blocked, AMX, BFP} }

// Lacks names what a class is made for and this machine has not: it computes that class hundreds of times slower, to compare
// with. "" where it lacks nothing.
func Lacks(class string) string {
	switch {
	case class == AMX && !amx.Here():
		return "tile registers (AMX)"
	case class == BFP && !bfp.Here():
		return "instructions for sums of bytes (AVX-512 VNNI, or AVX2 with FMA)"
	}
	return ""
}

// Fastest is the class that this machine computes fastest, as far as was measured: no tile registers were. With AVX2, BFP is a tenth
// faster where a token is read at a time, and a sixth slower where documents are, which is what takes the time.
func Fastest() string {
	if bfp.Widest() == bfp.VNNI {
		return BFP
	}
	return Blocked
}

// fused says that the class is Blocked or made from it.
func (b *Backend) fused() bool { return b.class != Rounded }

const grid = 512

// Options are the settings of a Backend. None of them but Class changes a bit of any result.
type Options struct {
	Class       string // one of Classes; "" means Rounded
	Workers     int    // goroutines of one operation; 0 means runtime.GOMAXPROCS(0)
	MemoryBytes int64  // the most that Alloc lends at one time; 0 sets no limit
}

// Backend computes on this machine's cores. The zero value is not usable; call New.
type Backend struct {
	class     string
	workers   int
	limit     int64        // bytes, 0 for none
	lent      atomic.Int64 // bytes lent by Alloc
	vector    vector       // the kernels that this processor runs
	chains    fma.Set      // the same, of the class Blocked
	tiles     amx.Set      // the same, of the class AMX
	integers  bfp.Set      // the same, of the class BFP
	crew      crew         // who helps with an operation
	profile   profile
	calls     atomic.Int64 // of newCall
	scratch   scratches    // of goroutines that work no more
	ropes     ropeTables
	taps      tapTables
	lookbacks kept[lookback, *lookback]
	cuts      kept[pieces, *pieces]
	reads     kept[fewRead, *fewRead]
	steps     kept[deltaStep, *deltaStep]
	held      sync.Pool // of *outputs, which a call of RunExperts holds
	experting kept[expertRun, *expertRun]

	shared arenas // where small tensors lie
	copies shelf  // where copies of weights lie

	failed sync.Mutex
	err    error // the first since the last Wait
}

var _ ops.Backend = (*Backend)(nil)

// New returns a backend of a known class. It starts no goroutine and holds no memory of its own.
func New(o Options) *Backend {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Class == "" {
		o.Class = Rounded
	}
	fit(slices.Contains(Classes(), o.Class), "New of class "+o.Class)
	b := &Backend{class: o.Class, workers: o.Workers, limit: o.MemoryBytes, vector: widest(), chains: fma.Widest(), integers: bfp.Widest()}
	if amx.Here() {
		b.tiles = amx.Tiles
	}
	b.crew.alive = make([]atomic.Bool, b.workers)
	return b
}

func (b *Backend) newScratch() *scratch {
	s := &scratch{vector: b.vector}
	if b.fused() {
		s.chains = &chains{set: b.chains, copies: &b.copies}
	}
	switch b.class {
	case AMX:
		s.chains.amx = &registers{set: b.tiles}
	case BFP:
		s.chains.bfp = &integers{set: b.integers}
	}
	return s
}

// Class is the numeric class: the written order of every sum in the package comment.
func (b *Backend) Class() string { return b.class }

// Grid is 512 tokens.
func (b *Backend) Grid() int { return grid }

// memory is one allocation. Free empties it, so that a late use panics instead of reading another's rows.
type memory struct {
	floats []float32
	free   func() // nil for memory of Go's heap
}

func (m *memory) Floats(from, to int) []float32 { return m.floats[from:to] }

// maxFloats bounds one allocation far below where make panics.
const maxFloats = 1 << 44

// Alloc returns zeroed memory for rows x cols floats, or an error that says how much was wanted and what is left
// of Options.MemoryBytes.
func (b *Backend) Alloc(rows, cols int) (ops.Tensor, error) {
	if rows < 0 || cols < 0 || cols > 0 && rows > maxFloats/cols {
		return ops.Tensor{}, fmt.Errorf("allocate %d x %d floats: not a size that memory can have", rows, cols)
	}
	bytes := 4 * int64(rows) * int64(cols)
	if lent := b.lent.Add(bytes); b.limit > 0 && lent > b.limit {
		b.lent.Add(-bytes)
		return ops.Tensor{}, fmt.Errorf("allocate %d x %d floats: %d bytes wanted, %d of the limit of %d bytes are left: use a smaller chunk or raise the limit",
			rows, cols, bytes, b.limit-(lent-bytes), b.limit)
	}
	floats, free, err := b.shared.get(rows * cols)
	if err != nil {
		b.lent.Add(-bytes)
		return ops.Tensor{}, fmt.Errorf("allocate %d x %d floats: %w", rows, cols, err)
	}
	return ops.Tensor{Rows: rows, Cols: cols, Mem: &memory{floats, free}}, nil
}

// Free gives the whole allocation behind t back. Freeing an empty tensor, or one twice, is harmless.
func (b *Backend) Free(t ops.Tensor) {
	m, ok := t.Mem.(*memory)
	if !ok {
		return
	}
	b.lent.Add(-4 * int64(len(m.floats)))
	m.floats = nil
	if m.free != nil {
		m.free()
		m.free = nil
	}
}

// AllocSlots returns plain memory, which is not counted as lent: whoever asks for slots counts those in use.
func (b *Backend) AllocSlots(n, size int) (ops.Slots, error) { return stream.Memory(n, size) }

// Wait returns the first error of a read since the last Wait, or the context's: operations are finished when they
// return, and none but RunExperts on stored records can fail.
func (b *Backend) Wait(ctx context.Context) error {
	b.failed.Lock()
	defer b.failed.Unlock()
	err := b.err
	b.err = nil
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// fail keeps an error for the next Wait.
func (b *Backend) fail(err error) {
	b.failed.Lock()
	defer b.failed.Unlock()
	if b.err == nil {
		b.err = err
	}
}
