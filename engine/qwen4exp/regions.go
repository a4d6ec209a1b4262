package qwen4exp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"lector/engine"
	"lector/engine/ops"
)

// What the regions of a cache that rounds are called after the cache.
const (
	scaleSuffix = "_scale"
	lossSuffix  = "_loss"
)

// region pairs a region's description with the memory behind it, whole: rows past the sequence's included.
type region struct {
	engine.Region
	whole []byte
	of    ops.Tensor // whose numbers whole holds in bfloat16; else empty
	loss  ops.Tensor // [rows, 2] sums of squares, of what rounding took and of the whole; else empty
}

// room makes memory for what is held otherwise than it is exported.
func (r *region) room() {
	if !r.of.Empty() {
		r.whole = make([]byte, 2*r.of.Rows*r.of.Cols)
	}
}

// narrow copies numbers that are bfloat16 already to what is exported.
func (r *region) narrow() {
	r.room()
	if out := viewOf[uint16](r.whole); !r.of.Empty() {
		for i, v := range r.of.Floats() {
			out[i] = uint16(math.Float32bits(v) >> 16)
		}
	}
}

// widen copies what was restored to where it is held.
func (r *region) widen() {
	if r.of.Empty() {
		return
	}
	to := r.of.Floats()
	for i, h := range viewOf[uint16](r.whole) {
		to[i] = math.Float32frombits(uint32(h) << 16)
	}
}

// lost is the relative L2 of what rounding took: sums over rows, ascending.
func (r *region) lost(pos engine.Pos) float64 {
	if r.loss.Empty() {
		return 0
	}
	n := r.loss.Rows
	if r.Kind == engine.Rows {
		n = r.RowsAt(pos)
	}
	lost, whole := 0.0, 0.0
	for row := range slices.Chunk(r.loss.Floats()[:2*n], 2) {
		lost += float64(row[0])
		whole += float64(row[1])
	}
	if whole == 0 {
		return 0
	}
	return math.Sqrt(lost / whole)
}

// regions describes the whole state at pos in a fixed order: rows first, layer by layer, then what is fixed.
func (s *Sequence) regions(pos int) []region {
	d, st := &s.net.dims, s.st
	rs := []region{{Region: engine.Region{Name: "tokens", DType: "i32", Shape: []int{}}, whole: bytesOf(st.tokens)}}
	rows := func(name string, lag int, dtype string, t ops.Tensor, shape ...int) {
		rs = append(rs, region{Region: engine.Region{Name: name, DType: dtype, Shape: shape, Lag: lag}, whole: bytesOf(floatsOf(t))})
	}
	keyed := func(name string, lag int, c ops.Cache) {
		switch d.KV {
		case ops.RowsF16:
			rows(name, lag, "f16", c.Data, d.Attn.Hkv, d.Attn.Hd)
		case ops.RowsQ8:
			rows(name, lag, "i8", c.Data, d.Attn.Hkv, d.Attn.Hd)
			rs[len(rs)-1].loss = c.Loss
			rows(name+scaleSuffix, lag, "f16", c.Scales, d.Attn.Hkv, d.groups())
			rows(name+lossSuffix, lag, "f32", c.Loss, 2)
		default:
			rows(name, lag, "f32", c.Data, d.Attn.Hkv, d.Attn.Hd)
		}
	}
	cache := func(prefix string, lag int, c *attnState) {
		keyed(prefix+".k", lag, c.k)
		keyed(prefix+".v", lag, c.v)
		rows(prefix+".index_k", lag, "f32", c.raw, d.Index.Dim)
	}
	for i := range st.layers {
		if c := st.layers[i].attn; c != nil {
			cache(fmt.Sprintf("layers.%d", i), 0, c)
		}
	}
	if st.mtp != nil {
		cache("mtp", 1, st.mtp)
	}
	return s.fixedRegions(rs, pos)
}

// fixedRegions appends the regions without an interior.
func (s *Sequence) fixedRegions(rs []region, pos int) []region {
	d, st := &s.net.dims, s.st
	fixed := func(name string, t ops.Tensor, shape ...int) {
		rs = append(rs, region{Region: engine.Region{Name: name, DType: "f32", Shape: shape, Kind: engine.Fixed}, whole: bytesOf(floatsOf(t))})
	}
	for i := range st.layers {
		prefix := fmt.Sprintf("layers.%d", i)
		if l := st.layers[i].delta; l != nil {
			if d.rounded(pos) {
				half := engine.Region{Name: prefix + ".recurrent", DType: "bf16", Shape: []int{d.Delta.Hv, d.Delta.Dk, d.Delta.Dv}, Kind: engine.Fixed}
				rs = append(rs, region{Region: half, of: l.s})
			} else {
				fixed(prefix+".recurrent", l.s, d.Delta.Hv, d.Delta.Dk, d.Delta.Dv)
			}
			if d.Cell > 0 {
				rs[len(rs)-1].loss = l.loss
				fixed(prefix+".recurrent"+lossSuffix, l.loss, d.Delta.Hv, 2)
			}
			fixed(prefix+".conv", l.conv, d.Taps-1, d.Channels)
		}
		if l := st.layers[i].ple; l != nil {
			fixed(prefix+".ple_conv", l.tail, l.tail.Rows, d.Wide)
		}
	}
	fixed("residual", st.residual, d.Wide)
	next := engine.Region{Name: "next", DType: "i32", Shape: []int{2}, Kind: engine.Fixed}
	return append(rs, region{Region: next, whole: bytesOf([]int32{st.next, st.draft})})
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
	rs := s.regions(s.st.pos)
	for i := range rs {
		rs[i].narrow()
		rs[i].Loss = rs[i].lost(engine.Pos(s.st.pos))
	}
	return views(rs, engine.Pos(s.st.pos)), nil
}

// views cuts every region to what counts at pos.
func views(rs []region, pos engine.Pos) []engine.Region {
	out := make([]engine.Region, len(rs))
	for i, r := range rs {
		size := r.RowBytes()
		if r.Kind == engine.Rows {
			size *= r.RowsAt(pos)
		}
		r.Data = r.whole[:size:size]
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
	room := min(s.capacity, int(pos)+s.engine.maxRows) + engine.MaxDrafts // what follows shall not move the caches at once
	if err := s.st.reserve(s.engine.be, &s.net.dims, room, s.capacity+engine.MaxDrafts); err != nil {
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
	r := &restoration{s: s, pos: int(pos), parts: s.regions(int(pos))}
	for i := range r.parts {
		r.parts[i].room()
	}
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
	for _, p := range r.parts {
		p.widen()
	}
	s, next := r.s, viewOf[int32](r.lent[len(r.lent)-1].Data)
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

// check refuses numbers that are not finite and ids outside the vocabulary. Where every number is finite, as ever but
// for damage, it looks at them by words, on all cores; what is wrong first is then looked for in order.
func (r *restoration) check() error {
	sound := finiteParts(r.lent)
	for i, part := range r.lent {
		var err error
		switch {
		case part.DType == "i32":
			err = r.checkTokens(part)
		case sound[i]:
		case part.DType == "f32":
			err = checkFinite(viewOf[float32](part.Data), "region "+part.Name+" for", r.pos)
		case part.DType == "f16" || part.DType == "bf16":
			err = r.checkHalves(part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkHalves refuses numbers of two bytes that are not finite: their exponents are all ones.
func (r *restoration) checkHalves(part engine.Region) error {
	exponent := uint16(0x7c00)
	if part.DType == "bf16" {
		exponent = 0x7f80
	}
	for at, h := range viewOf[uint16](part.Data) {
		if h&exponent == exponent {
			return fmt.Errorf("%w: %s %#04x at %d of region %s for %d tokens", engine.ErrNumeric, part.DType, h, at, part.Name, r.pos)
		}
	}
	return nil
}

// checkTokens refuses ids outside the vocabulary; there may be no next token or draft.
func (r *restoration) checkTokens(part engine.Region) error {
	low := engine.Token(0)
	if part.Name == "next" {
		low = engine.NoToken
	}
	for at, id := range viewOf[int32](part.Data) {
		if id < low || int(id) >= r.s.net.Vocab {
			return fmt.Errorf("%w: id %d at %d of region %s, the vocabulary has %d", engine.ErrToken, id, at, part.Name, r.s.net.Vocab)
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

// viewOf reads bytes that began as such values, or lie as they would.
func viewOf[T int32 | float32 | uint16](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(one)))
}

// bytesOf reads four-byte values as bytes. Every host that lector runs on is little-endian, as the format is.
func bytesOf[T int32 | float32](xs []T) []byte {
	if len(xs) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&xs[0])), 4*len(xs))
}
