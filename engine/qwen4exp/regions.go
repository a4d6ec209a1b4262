package qwen4exp

import (
	"context"
	"fmt"
	"unsafe"

	"lector/engine"
	"lector/engine/ops"
)

// region pairs a region's description with the memory behind it, whole: rows past the sequence's included.
type region struct {
	engine.Region
	floats []float32
	ints   []int32
}

// regions describes the whole state in a fixed order: rows first, layer by layer, then what is fixed.
func (s *Sequence) regions() []region {
	d, st := &s.net.dims, s.st
	rs := []region{{Region: engine.Region{Name: "tokens", DType: "i32", Shape: []int{}}, ints: st.tokens}}
	rows := func(name string, lag int, t ops.Tensor, shape ...int) {
		rs = append(rs, region{Region: engine.Region{Name: name, DType: "f32", Shape: shape, Lag: lag}, floats: floatsOf(t)})
	}
	cache := func(prefix string, lag int, c *attnState) {
		rows(prefix+".k", lag, c.k, d.Attn.Hkv, d.Attn.Hd)
		rows(prefix+".v", lag, c.v, d.Attn.Hkv, d.Attn.Hd)
		rows(prefix+".index_k", lag, c.raw, d.Index.Dim)
	}
	for i := range st.layers {
		if c := st.layers[i].attn; c != nil {
			cache(fmt.Sprintf("layers.%d", i), 0, c)
		}
	}
	if st.mtp != nil {
		cache("mtp", 1, st.mtp)
	}
	return s.fixedRegions(rs)
}

// fixedRegions appends the regions without an interior.
func (s *Sequence) fixedRegions(rs []region) []region {
	d, st := &s.net.dims, s.st
	fixed := func(name string, t ops.Tensor, shape ...int) {
		rs = append(rs, region{Region: engine.Region{Name: name, DType: "f32", Shape: shape, Kind: engine.Fixed}, floats: floatsOf(t)})
	}
	for i := range st.layers {
		prefix := fmt.Sprintf("layers.%d", i)
		if l := st.layers[i].delta; l != nil {
			fixed(prefix+".recurrent", l.s, d.Delta.Hv, d.Delta.Dk, d.Delta.Dv)
			fixed(prefix+".conv", l.conv, d.Taps-1, d.Channels)
		}
		if l := st.layers[i].ple; l != nil {
			fixed(prefix+".ple_conv", l.tail, l.tail.Rows, d.Wide)
		}
	}
	fixed("residual", st.residual, d.Wide)
	next := engine.Region{Name: "next", DType: "i32", Shape: []int{2}, Kind: engine.Fixed}
	return append(rs, region{Region: next, ints: []int32{st.next, st.draft}})
}

// Regions implements engine.Sequence.
func (s *Sequence) Regions() ([]engine.Region, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.view.alters() {
		return nil, fmt.Errorf("%w: parts of the network were skipped for debugging", engine.ErrState)
	}
	if s.st.pos == 0 {
		return nil, fmt.Errorf("%w: an empty sequence has none", engine.ErrState)
	}
	if !s.st.drafted {
		drafts, _, err := s.propose(context.Background(), s.st.next, 1)
		if err != nil {
			return nil, fmt.Errorf("export state: %w", err)
		}
		s.st.draft, s.st.drafted = drafts[0], true
	}
	return views(s.regions(), engine.Pos(s.st.pos)), nil
}

// views cuts every region to what counts at pos.
func views(rs []region, pos engine.Pos) []engine.Region {
	out := make([]engine.Region, len(rs))
	for i, r := range rs {
		size := r.RowBytes()
		if r.Kind == engine.Rows {
			size *= r.RowsAt(pos)
		}
		data := bytesOf(r.floats)
		if r.ints != nil {
			data = bytesOf(r.ints)
		}
		r.Data = data[:size:size]
		out[i] = r.Region
	}
	return out
}

// Restore implements engine.Sequence.
func (s *Sequence) Restore(pos engine.Pos) (engine.Restoration, error) {
	if s.closed {
		return nil, errClosed
	}
	if s.st.pos != 0 && !s.broken {
		return nil, fmt.Errorf("%w: restore into a sequence at %d, it must be empty", engine.ErrState, s.st.pos)
	}
	if pos < 1 || int(pos) > s.capacity {
		return nil, fmt.Errorf("restore %d tokens: %w: the sequence holds 1 to %d", pos, engine.ErrTooLong, s.capacity)
	}
	if err := s.st.reserve(s.engine.be, &s.net.dims, int(pos)+engine.MaxDrafts, s.capacity+engine.MaxDrafts); err != nil {
		return nil, fmt.Errorf("restore %d tokens: %w", pos, err)
	}
	if err := s.engine.be.Wait(context.Background()); err != nil { // what is queued must not land in what is restored
		return nil, fmt.Errorf("restore %d tokens: %w", pos, deviceError(err))
	}
	s.broken = true // until Commit
	if s.marked != nil {
		s.marked.pos = 0
	}
	s.st.reset()
	s.st.tokens = make([]engine.Token, pos)
	r := &restoration{s: s, pos: int(pos), parts: s.regions()}
	r.lent = views(r.parts, pos)
	return r, nil
}

// restoration implements engine.Restoration: the caller writes straight into the caches.
type restoration struct {
	s     *Sequence
	pos   int
	parts []region
	lent  []engine.Region
	done  bool
}

// Regions implements engine.Restoration.
func (r *restoration) Regions() []engine.Region { return r.lent }

// Abort implements engine.Restoration.
func (r *restoration) Abort() {
	if !r.done {
		r.done = true
		r.s.st.reset()
		r.s.broken = false
	}
}

// Commit implements engine.Restoration.
func (r *restoration) Commit(ctx context.Context) error {
	if r.done {
		return fmt.Errorf("%w: the restoration is over", engine.ErrState)
	}
	if err := r.check(); err != nil {
		r.Abort()
		return fmt.Errorf("restore %d tokens: %w", r.pos, err)
	}
	s, next := r.s, r.parts[len(r.parts)-1].ints
	for i := range s.net.layers {
		if m := s.net.layers[i].attn; m != nil {
			m.pool(s.engine.be, &s.net.dims, s.st.layers[i].attn, 0, r.pos)
		}
	}
	if s.net.mtp != nil {
		s.net.mtp.layer.attn.pool(s.engine.be, &s.net.dims, s.st.mtp, 0, r.pos-1)
	}
	if err := s.engine.be.Wait(ctx); err != nil {
		r.Abort()
		return fmt.Errorf("restore %d tokens: %w", r.pos, deviceError(err))
	}
	r.done, s.broken = true, false
	s.st.pos = r.pos
	s.st.next, s.st.draft, s.st.drafted = next[0], next[1], true
	return nil
}

// check refuses numbers that are not finite and ids outside the vocabulary.
func (r *restoration) check() error {
	for i, lent := range r.lent {
		part := r.parts[i]
		low := engine.Token(0)
		if part.Name == "next" {
			low = engine.NoToken
		}
		n := len(lent.Data) / 4
		if part.ints == nil {
			if err := checkFinite(part.floats[:n], "region "+part.Name+" for", r.pos); err != nil {
				return err
			}
			continue
		}
		for at, id := range part.ints[:n] {
			if id < low || int(id) >= r.s.net.Vocab {
				return fmt.Errorf("%w: id %d at %d of region %s, the vocabulary has %d", engine.ErrToken, id, at, part.Name, r.s.net.Vocab)
			}
		}
	}
	return nil
}

func floatsOf(t ops.Tensor) []float32 {
	if t.Empty() {
		return nil
	}
	return t.Floats()
}

// bytesOf reads four-byte values as bytes. Every host that lector runs on is little-endian, as the format is.
func bytesOf[T int32 | float32](xs []T) []byte {
	if len(xs) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&xs[0])), 4*len(xs))
}
