package branch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"lector/cache"
)

// Difference is a range of tokens in which a region of two snapshots differs. A fixed region differs as a whole, at the
// token count To, and From is To then.
type Difference struct {
	Region string `json:"region"`
	From   int    `json:"from"`
	To     int    `json:"to"`
}

// Comparison is what Diff found.
type Comparison struct {
	Identity string       `json:"identity,omitempty"` // why one cannot be restored in place of the other; "" when it can
	Tokens   [2]int       `json:"tokens"`
	Alone    [2]bool      `json:"tokens_only,omitzero"` // which hold token ids alone: where one does, nothing else is compared
	Shared   int          `json:"shared"`               // leading tokens whose rows have equal digests or were found equal
	Differ   []Difference `json:"differ"`               // within the tokens that both have; fixed regions when both have as many
}

// Equal says that the two hold the same state, or the same token ids and no state.
func (c Comparison) Equal() bool {
	return c.Identity == "" && c.Alone[0] == c.Alone[1] && c.Tokens[0] == c.Tokens[1] && len(c.Differ) == 0
}

// Diff compares the states of two manifests of one layout, row by row over the tokens that both have, and their
// recurrent states when they have equally many. Errors: cache.ErrIncompatible where the layouts differ; those of reading.
func Diff(ctx context.Context, s *cache.Space, a, b cache.Manifest) (Comparison, error) {
	c := Comparison{Tokens: [2]int{a.Tokens, b.Tokens}, Differ: []Difference{}}
	if err := a.Identity.Compatible(b.Identity); err != nil {
		c.Identity = err.Error()
	}
	if c.Alone = [2]bool{a.TokensOnly(), b.TokensOnly()}; c.Alone[0] || c.Alone[1] {
		return c, c.ids(ctx, s, a, b)
	}
	l, r := a.Layout, b.Layout
	if a.Tokens != b.Tokens { // then recurrent states are not compared
		l, r = l.OfRows(), r.OfRows()
	}
	if !slices.EqualFunc(l, r, func(x, y cache.Spec) bool { return x.String() == y.String() }) {
		return c, fmt.Errorf("compare: the snapshots have other regions: %w", cache.ErrIncompatible)
	}
	left, right := &side{space: s, m: a}, &side{space: s, m: b}
	both := min(a.Tokens, b.Tokens)
	for from := 0; from < both; {
		x, y := left.chunk(from), right.chunk(from)
		to := min(x.To, y.To, both)
		if x.From != y.From || x.To != y.To || !slices.Equal(x.Rows, y.Rows) {
			if err := c.rows(ctx, left, right, from, to); err != nil {
				return c, err
			}
		}
		from = to
	}
	c.Differ = merge(a.Layout, c.Differ)
	c.Shared = both
	for _, d := range c.Differ {
		c.Shared = min(c.Shared, d.From)
	}
	if a.Tokens == b.Tokens && !slices.Equal(a.State, b.State) {
		if err := c.fixed(ctx, left, right); err != nil {
			return c, err
		}
	}
	return c, nil
}

// ids compares the token ids.
func (c *Comparison) ids(ctx context.Context, s *cache.Space, a, b cache.Manifest) error {
	left, err := s.Tokens(ctx, a)
	if err != nil {
		return err
	}
	right, err := s.Tokens(ctx, b)
	if err != nil {
		return err
	}
	both := min(len(left), len(right))
	c.Shared = both
	for i := range both {
		if left[i] != right[i] {
			c.Shared = min(c.Shared, i)
			c.Differ = append(c.Differ, Difference{cache.TokensRegion, i, i + 1})
		}
	}
	c.Differ = merge(cache.Layout{{Name: cache.TokensRegion}}, c.Differ)
	return nil
}

// side is one of the two snapshots, with the rows of the chunk that was read last.
type side struct {
	space *cache.Space
	m     cache.Manifest
	held  cache.Chunk
	data  []byte
}

// chunk is the one that holds a token.
func (s *side) chunk(token int) cache.Chunk {
	i, _ := slices.BinarySearchFunc(s.m.Chunks, token, func(c cache.Chunk, t int) int {
		if c.To <= t {
			return -1
		}
		return 1
	})
	return s.m.Chunks[i]
}

// read joins blobs into the stream that they were cut from.
func (s *side) read(ctx context.Context, blobs []cache.Blob) ([]byte, error) {
	var out []byte
	for _, b := range blobs {
		name := s.space.TenantName() + "/blobs/" + b.Digest.String()
		r, err := s.space.Store.Get(ctx, name, 0, b.Size)
		if err != nil {
			return nil, err
		}
		at := len(out)
		out = append(out, make([]byte, b.Size)...)
		_, err = io.ReadFull(r, out[at:])
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if cache.Sum(out[at:]) != b.Digest {
			return nil, fmt.Errorf("blob %s is damaged: %w", name, cache.ErrCorrupt)
		}
	}
	return out, nil
}

// row is what a region holds for one token: the row that the token completes; nothing for the first Lag tokens.
func (s *side) row(region, token int) []byte {
	at := int64(0)
	for i, spec := range s.m.Layout {
		if spec.Kind != cache.Rows {
			continue
		}
		first, last := max(s.held.From-spec.Lag, 0), max(s.held.To-spec.Lag, 0)
		n := unit(spec)
		if i == region {
			if r := token - spec.Lag; r >= 0 {
				off := at + n*int64(r-first)
				return s.data[off : off+n]
			}
			return nil
		}
		at += n * int64(last-first)
	}
	return nil
}

// hold reads the rows of the chunk that has a token, unless it is at hand.
func (s *side) hold(ctx context.Context, token int) (err error) {
	c := s.chunk(token)
	if s.data != nil && s.held.Key == c.Key {
		return nil
	}
	s.held = c
	s.data, err = s.read(ctx, c.Rows)
	return err
}

// rows compares the rows of tokens [from, to), which lie within one chunk on each side.
func (c *Comparison) rows(ctx context.Context, a, b *side, from, to int) error {
	if err := errors.Join(a.hold(ctx, from), b.hold(ctx, from)); err != nil {
		return err
	}
	for i, spec := range a.m.Layout {
		if spec.Kind != cache.Rows {
			continue
		}
		for t := from; t < to; t++ {
			if !bytes.Equal(a.row(i, t), b.row(i, t)) {
				c.Differ = append(c.Differ, Difference{spec.Name, max(t-spec.Lag, 0), t - spec.Lag + 1})
			}
		}
	}
	return nil
}

// fixed compares the recurrent states.
func (c *Comparison) fixed(ctx context.Context, a, b *side) error {
	x, err := a.read(ctx, a.m.State)
	if err != nil {
		return err
	}
	y, err := b.read(ctx, b.m.State)
	if err != nil {
		return err
	}
	for _, spec := range a.m.Layout {
		if spec.Kind != cache.Fixed {
			continue
		}
		n := unit(spec)
		if !bytes.Equal(x[:n], y[:n]) {
			c.Differ = append(c.Differ, Difference{spec.Name, a.m.Tokens, a.m.Tokens})
		}
		x, y = x[n:], y[n:]
	}
	return nil
}

// unit is the size of one row, or of the whole of a fixed region.
func unit(s cache.Spec) int64 {
	n := map[string]int64{"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i8": 1}[s.DType]
	for _, d := range s.Shape {
		n *= int64(d)
	}
	return n
}

// merge joins ranges of one region that touch, in the order of the layout.
func merge(l cache.Layout, found []Difference) []Difference {
	out := []Difference{}
	for _, spec := range l {
		for _, d := range found {
			if d.Region != spec.Name {
				continue
			}
			if n := len(out) - 1; n >= 0 && out[n].Region == d.Region && out[n].To >= d.From {
				out[n].To = d.To
				continue
			}
			out = append(out, d)
		}
	}
	return out
}
