package cpu

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"lector/engine/ops"
)

const (
	class = "cpu-f32"
	grid  = 512
)

// Options are the settings of a Backend. None of them changes a bit of any result.
type Options struct {
	Workers     int   // goroutines of one operation; 0 means runtime.GOMAXPROCS(0)
	MemoryBytes int64 // the most that Alloc lends at one time; 0 sets no limit
}

// Backend computes on this machine's cores. The zero value is not usable; call New.
type Backend struct {
	workers int
	limit   int64        // bytes, 0 for none
	lent    atomic.Int64 // bytes lent by Alloc
	vector  vector       // the kernels that this processor runs
	scratch sync.Pool    // of *scratch
	ropes   ropeTables
}

var _ ops.Backend = (*Backend)(nil)

// New returns a backend. It starts no goroutine and holds no memory of its own.
func New(o Options) *Backend {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	b := &Backend{workers: o.Workers, limit: o.MemoryBytes, vector: widest()}
	b.scratch.New = func() any { return &scratch{vector: b.vector} }
	return b
}

// Class is "cpu-f32": the written order of every sum in the package comment.
func (b *Backend) Class() string { return class }

// Grid is 512 tokens.
func (b *Backend) Grid() int { return grid }

// memory is one allocation. Free empties it, so that a late use panics instead of reading another's rows.
type memory struct{ floats []float32 }

func (m *memory) Floats() []float32 { return m.floats }

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
	return ops.Tensor{Rows: rows, Cols: cols, Mem: &memory{make([]float32, rows*cols)}}, nil
}

// Free gives the whole allocation behind t back. Freeing an empty tensor, or one twice, is harmless.
func (b *Backend) Free(t ops.Tensor) {
	m, ok := t.Mem.(*memory)
	if !ok {
		return
	}
	b.lent.Add(-4 * int64(len(m.floats)))
	m.floats = nil
}

// Wait returns the context's error: operations are finished when they return, and none of them can fail.
func (b *Backend) Wait(ctx context.Context) error { return ctx.Err() }
