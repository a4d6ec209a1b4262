package cache

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind says how a region grows.
type Kind uint8

const (
	// Rows regions hold one row a token: append-only, so a range of rows never changes once written.
	Rows Kind = iota
	// Fixed regions hold the state at a boundary as a whole; they have no interior.
	Fixed
)

// String is the stored form: "rows" or "fixed".
func (k Kind) String() string {
	switch k {
	case Rows:
		return "rows"
	case Fixed:
		return "fixed"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MarshalText writes the stored form.
func (k Kind) MarshalText() ([]byte, error) {
	if k > Fixed {
		return nil, fmt.Errorf("region kind %d is not known", uint8(k))
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads the stored form.
func (k *Kind) UnmarshalText(b []byte) error {
	switch string(b) {
	case "rows":
		*k = Rows
	case "fixed":
		*k = Fixed
	default:
		return fmt.Errorf("region kind %.40q is not known", b)
	}
	return nil
}

// TokensRegion is the name of the Rows region, i32 and one value a row, that holds the token ids. Where a
// layout has it, its bytes are compared with the digests of the tokens.
const TokensRegion = "tokens"

// Bounds on what a layout from outside may claim. A real model needs a few hundred regions and a few gigabytes.
const (
	maxRegions = 1 << 14
	maxRank    = 8
	maxTokens  = 1 << 31
	maxBytes   = int64(1) << 48 // of a whole state: sums of parts stay far from overflow
)

// Region is a named, typed, shaped range of a sequence's state. It looks like the engine's on purpose: the
// worker copies one to the other, so that neither folder knows the other.
type Region struct {
	Name  string
	DType string // "f32", "i32", "f16", "bf16" or "i8"
	Shape []int  // of one row (Rows) or of the whole (Fixed)
	Kind  Kind
	Lag   int    // by how many rows a Rows region trails the token count
	Data  []byte // little-endian, row-major
	// Loss is the relative L2 of what rounding took from what was computed; 0 where the region holds it as it was.
	Loss float32
}

// Spec describes the region without its bytes.
func (r Region) Spec() Spec {
	return Spec{Name: r.Name, DType: r.DType, Shape: append([]int{}, r.Shape...), Kind: r.Kind, Lag: r.Lag}
}

// Spec is the stored description of one region.
type Spec struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Kind  Kind   `json:"kind"`
	Lag   int    `json:"lag"`
}

// String is for messages: "layers.3.k f32 [2 128] rows".
func (s Spec) String() string {
	lag := ""
	if s.Lag != 0 {
		lag = fmt.Sprintf(" lag %d", s.Lag)
	}
	return fmt.Sprintf("%s %s %v %s%s", s.Name, s.DType, s.Shape, s.Kind, lag)
}

func (s Spec) equal(o Spec) bool {
	return s.Name == o.Name && s.DType == o.DType && s.Kind == o.Kind && s.Lag == o.Lag && slices.Equal(s.Shape, o.Shape)
}

// unit is the size of one row, or of the whole of a Fixed region. Only a checked spec has one.
func (s Spec) unit() int64 {
	n := dtypeBytes(s.DType)
	for _, d := range s.Shape {
		n *= int64(d)
	}
	return n
}

// Rows is the number of rows at a token count.
func (s Spec) Rows(at int) int { return max(at-s.Lag, 0) }

// Size is the number of bytes of the region at a token count.
func (s Spec) Size(at int) int64 {
	if s.Kind == Fixed {
		return s.unit()
	}
	return s.unit() * int64(s.Rows(at))
}

// dtypeBytes is the size of one value; 0 for a type that is not known.
func dtypeBytes(dtype string) int64 {
	switch dtype {
	case "f32", "i32":
		return 4
	case "f16", "bf16":
		return 2
	case "i8":
		return 1
	}
	return 0
}

func (s Spec) check() error {
	switch {
	case s.Name == "" || len(s.Name) > 128 || strings.IndexFunc(s.Name, notNameRune) >= 0:
		return fmt.Errorf("region name %.140q is not made of 1 to 128 letters, digits, '.', '_' and '-'", s.Name)
	case dtypeBytes(s.DType) == 0:
		return fmt.Errorf("region %s has the unknown type %.40q", s.Name, s.DType)
	case s.Kind > Fixed:
		return fmt.Errorf("region %s has the unknown kind %d", s.Name, s.Kind)
	case len(s.Shape) > maxRank:
		return fmt.Errorf("region %s has %d dimensions, more than %d", s.Name, len(s.Shape), maxRank)
	case s.Lag < 0 || s.Lag > maxTokens || s.Kind == Fixed && s.Lag != 0:
		return fmt.Errorf("region %s of kind %s has the lag %d", s.Name, s.Kind, s.Lag)
	}
	n := dtypeBytes(s.DType)
	for _, d := range s.Shape {
		if d < 0 || d > math.MaxInt32 || int64(d) > maxBytes/max(n, 1) {
			return fmt.Errorf("region %s has the shape %v, which is no possible size", s.Name, s.Shape)
		}
		n *= int64(d)
	}
	return nil
}

// Layout describes the regions of a state in their order. Rows of a chunk, and the recurrent state, are stored
// in this order back to back.
type Layout []Spec

// check validates the layout for a state of the given token count, and returns its bytes. After it, no sum or
// product over parts of that state can overflow.
func (l Layout) check(tokens int) (int64, error) {
	if tokens < 0 || tokens > maxTokens {
		return 0, fmt.Errorf("%d tokens are no possible count", tokens)
	}
	if len(l) > maxRegions {
		return 0, fmt.Errorf("layout has %d regions, more than %d", len(l), maxRegions)
	}
	total := int64(0)
	names := make(map[string]bool, len(l))
	for _, s := range l {
		if err := s.check(); err != nil {
			return 0, err
		}
		if names[s.Name] {
			return 0, fmt.Errorf("region %s is described twice", s.Name)
		}
		names[s.Name] = true
		if rows := int64(s.Rows(tokens)); s.Kind == Rows && rows > 0 && s.unit() > maxBytes/rows {
			return 0, fmt.Errorf("region %s of %d rows is beyond any possible size", s.Name, rows)
		}
		if total += s.Size(tokens); total > maxBytes {
			return 0, fmt.Errorf("state of %d tokens is beyond any possible size at region %s", tokens, s.Name)
		}
	}
	return total, nil
}

// OfRows are the regions that grow with the tokens. Nodes of one chain have them alike; how a recurrent state is held may
// depend on where it is.
func (l Layout) OfRows() Layout {
	var out Layout
	for _, s := range l {
		if s.Kind == Rows {
			out = append(out, s)
		}
	}
	return out
}

// chunkBytes is the size of the rows that tokens [from, to) add.
func (l Layout) chunkBytes(from, to int) (n int64) {
	for _, s := range l {
		if s.Kind == Rows {
			n += s.Size(to) - s.Size(from)
		}
	}
	return n
}

// fixedBytes is the size of the recurrent state.
func (l Layout) fixedBytes() (n int64) {
	for _, s := range l {
		if s.Kind == Fixed {
			n += s.unit()
		}
	}
	return n
}

// differs names the first difference between a stored layout and another, or is nil. who owns the other.
func (l Layout) differs(other Layout, who string) error {
	for i := range min(len(l), len(other)) {
		if !l[i].equal(other[i]) {
			return refuse(ErrIncompatible, "region %d: snapshot has %s, %s has %s", i, l[i], who, other[i])
		}
	}
	switch {
	case len(l) > len(other):
		return refuse(ErrIncompatible, "region %d: snapshot has %s, %s has no such region", len(other), l[len(other)], who)
	case len(l) < len(other):
		return refuse(ErrIncompatible, "region %d: snapshot has none, %s has %s", len(l), who, other[len(l)])
	}
	return nil
}

// layoutOf describes regions and checks that each holds exactly the bytes of a state of that token count.
func layoutOf(regions []Region, tokens int) (Layout, error) {
	l := make(Layout, len(regions))
	for i, r := range regions {
		l[i] = r.Spec()
	}
	if _, err := l.check(tokens); err != nil {
		return nil, err
	}
	for i, r := range regions {
		if want := l[i].Size(tokens); int64(len(r.Data)) != want {
			return nil, fmt.Errorf("region %s holds %d bytes, and a state of %d tokens has %d", r.Name, len(r.Data), tokens, want)
		}
	}
	return l, nil
}

// segment is a range of one region's bytes.
type segment struct {
	region string
	data   []byte
}

// rowSegments lists, in order, what each Rows region adds for tokens [from, to). The regions are checked.
func rowSegments(regions []Region, from, to int) []segment {
	var out []segment
	for _, r := range regions {
		if s := r.Spec(); r.Kind == Rows && s.Size(to) > s.Size(from) {
			out = append(out, segment{r.Name, r.Data[s.Size(from):s.Size(to)]})
		}
	}
	return out
}

// fixedSegments lists the Fixed regions in order.
func fixedSegments(regions []Region) []segment {
	var out []segment
	for _, r := range regions {
		if r.Kind == Fixed && len(r.Data) > 0 {
			out = append(out, segment{r.Name, r.Data})
		}
	}
	return out
}

// window is the part [off, off+n) of the segments as one stream.
func window(segs []segment, off, n int64) []segment {
	var out []segment
	for _, s := range segs {
		size := int64(len(s.data))
		if off < size && n > 0 {
			take := min(size-off, n)
			out = append(out, segment{s.region, s.data[off : off+take]})
			n -= take
			off = 0
			continue
		}
		off -= min(off, size)
	}
	return out
}
