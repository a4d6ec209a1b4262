package ops

import (
	"sync"
	"sync/atomic"
)

// Panels holds a matrix as a backend likes it, made at the first use: a copy, beside the stored bytes.
type Panels struct {
	once sync.Once
	made atomic.Pointer[any]
}

// Copy returns the copy, and makes it once.
func (p *Panels) Copy(from func() any) any {
	p.once.Do(func() {
		own := from()
		p.made.Store(&own)
	})
	return p.Made()
}

// Made is the copy where it is made, else nil.
func (p *Panels) Made() any {
	if own := p.made.Load(); own != nil {
		return *own
	}
	return nil
}

// Repacker is what a Backend may be besides: one that is faster with its own copy of a matrix.
type Repacker interface {
	// PanelBytes is the memory that a copy takes; 0 where a copy is no use.
	PanelBytes(m Matrix) int
}

// Arranger is what a Backend may be besides: one that reads the matrices of expert records faster in an order of its own.
// The bytes of a matrix are as many, in the same place.
type Arranger interface {
	// Arranges says how many outputs lie side by side in the order that the backend has for matrices like m; 0 where it has none.
	Arranges(m *Matrix) int
	// Arrange brings the stored bytes of m into that order, and says so in Tiled. Goroutines may do so side by side.
	Arrange(m *Matrix)
}

// StreamReader is what a Backend may be besides: one that carries out a gated read in one operation, without bringing
// what lies between its steps to memory. The bits are those of the single operations.
type StreamReader interface {
	// ReadsStreams says that so many rows are worth it, with low columns between the two products.
	ReadsStreams(rows, low int) bool
	// ReadStreams carries out a read.
	ReadStreams(r StreamRead)
}

// StreamRead is a gated read of hyper-connected streams, n of width h; W = n*h:
//
//	wide[g] += inj[g] * y, if there is a y;  z = RMSNorm(wide), a mean for every stream
//	x = mean over streams of sigmoid(Up silu(Down z / n)) * z
//	inj = 2 sigmoid(Inject z / n), if there is an Inject
type StreamRead struct {
	X, Wide, Y, Inj Tensor    // [T, h], [T, W], [T, h] or empty, [T, n]
	Norm            []float32 // [W]
	Eps             float32
	Down, Up        Matrix // [r, W], [W, r]
	Inject          Matrix // [n, W]; without data where there is none
}
