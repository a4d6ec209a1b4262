package ops

// RowFormat says how a Cache holds its rows. StoreRows rounds once, and Attend reads what it left: a row that was
// exported and restored is the row that was there.
type RowFormat uint8

const (
	RowsF32 RowFormat = iota // float32, as computed
	RowsF16                  // IEEE half, to nearest even; beyond its range infinite, which the check of logits finds
	// RowsQ8 holds codes of 8 bits, -127 to 127, and a half for every RowGroup dims of a head that is worth one code
	// of them: the largest size among them / 127.
	RowsQ8
)

// RowGroup is how many neighbouring dims of a head share a scale; the last group of a head has what is left.
const RowGroup = 32

// Cache holds rows of heads, such as keys: one row a token, the rows back to back without padding.
type Cache struct {
	Rows, Heads, Dim int
	Format           RowFormat
	Data             Tensor // RowsF32: [Rows, Heads*Dim]; otherwise the values, four bytes to a float's place
	Scales           Tensor // RowsQ8: Groups halves a row, two to a float's place; else empty
	// Loss is, with RowsQ8, what rounding took from each row: the sum of squares of the differences and of the row,
	// [Rows, 2]; else empty.
	Loss Tensor
}

// NewCache allocates a cache tensor by tensor.
func NewCache(f RowFormat, rows, heads, dim int, alloc func(rows, cols int) Tensor) Cache {
	c := Cache{Rows: rows, Heads: heads, Dim: dim, Format: f}
	words := func(bytes int) Tensor { return alloc((bytes+3)/4, 1) }
	switch f {
	case RowsF16:
		c.Data = words(2 * rows * heads * dim)
	case RowsQ8:
		c.Data, c.Scales, c.Loss = words(rows*heads*dim), words(2*rows*c.Groups()), alloc(rows, 2)
	default:
		c.Data = alloc(rows, heads*dim)
	}
	return c
}

// CacheOf reads a tensor [rows, heads*dim] as a cache of RowsF32.
func CacheOf(t Tensor, heads int) Cache {
	return Cache{Rows: t.Rows, Heads: heads, Dim: t.Cols / heads, Data: t}
}

// Groups is how many scales a row has.
func (c Cache) Groups() int { return c.Heads * c.HeadGroups() }

// HeadGroups is how many of them a head has.
func (c Cache) HeadGroups() int { return (c.Dim + RowGroup - 1) / RowGroup }

// Tensors are the tensors that the format has.
func (c Cache) Tensors() []Tensor {
	if c.Format == RowsQ8 {
		return []Tensor{c.Data, c.Scales, c.Loss}
	}
	return []Tensor{c.Data}
}

// Fits says that the tensors hold the rows, and that x is rows of them from row on.
func (c Cache) Fits(row int, x Tensor) bool {
	values := c.Rows * c.Heads * c.Dim
	held := func(t Tensor) int { return 4 * t.Rows * t.Cols }
	ok := c.Heads > 0 && c.Dim > 0 && row >= 0 && row+x.Rows <= c.Rows && x.Cols == c.Heads*c.Dim
	switch c.Format {
	case RowsF32:
		return ok && held(c.Data) == 4*values
	case RowsF16:
		return ok && held(c.Data) >= 2*values
	case RowsQ8:
		return ok && held(c.Data) >= values && held(c.Scales) >= 2*c.Rows*c.Groups() && c.Loss.Rows == c.Rows && c.Loss.Cols == 2
	}
	return false
}

// FitsAttend says that queries, outputs and caches are those of these dims, with T rows from position pos on.
func (d AttentionDims) FitsAttend(o, qg Tensor, k, v Cache, pos int) bool {
	holds := func(c Cache) bool {
		return c.Heads == d.Hkv && c.Dim == d.Hd && c.Rows >= pos+o.Rows && c.Fits(0, Tensor{Cols: d.Hkv * d.Hd})
	}
	return d.Hkv > 0 && d.Hq%d.Hkv == 0 && o.Rows == qg.Rows && qg.Cols == 2*d.Hq*d.Hd && o.Cols == d.Hq*d.Hd &&
		holds(k) && holds(v) && k.Format == v.Format
}
