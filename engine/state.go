package engine

import "context"

// Kind says how a region grows.
type Kind uint8

const (
	// Rows regions hold one row a token: append-only, so a range of rows never changes once written.
	Rows Kind = iota
	// Fixed regions hold the state at Pos as a whole; they have no interior.
	Fixed
)

// Region is a named, typed, shaped range of a sequence's state.
type Region struct {
	Name  string // such as "layers.3.k"
	DType string // "f32", "i32", "f16", "bf16" or "i8"
	Shape []int  // of one row (Rows) or of the whole (Fixed)
	Kind  Kind
	// Lag is by how many rows a Rows region trails Pos: the draft head's row of the last token needs the
	// token after it, so its regions hold max(p-1, 0) rows.
	Lag  int
	Data []byte // little-endian, row-major
	// Loss is the relative L2 of what rounding to how the region is held took from what was computed, all of it up to
	// here; 0 where nothing was rounded. It is as much a function of identity and tokens as Data. Restorations have none.
	Loss float64
}

// RowBytes is the size of one row (Rows) or of the whole (Fixed).
func (r Region) RowBytes() int {
	n := r.ValueBytes()
	for _, d := range r.Shape {
		n *= d
	}
	return n
}

// ValueBytes is the size of one value.
func (r Region) ValueBytes() int {
	switch r.DType {
	case "f16", "bf16":
		return 2
	case "i8":
		return 1
	}
	return 4
}

// RowsAt is the number of rows a Rows region holds at pos.
func (r Region) RowsAt(pos Pos) int { return max(int(pos)-r.Lag, 0) }

// Restoration is a state being put back. Regions have their full size; the caller fills Data in place.
// Nothing counts until Commit; after Abort, or a Commit that fails, the sequence is empty.
type Restoration interface {
	Regions() []Region
	// Commit checks what was filled in (tokens inside the vocabulary, every number finite) and adopts it.
	// Errors: ErrNumeric, ErrToken naming the region.
	Commit(ctx context.Context) error
	Abort()
}
