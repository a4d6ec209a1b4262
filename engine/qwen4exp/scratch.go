package qwen4exp

import (
	"fmt"
	"slices"

	"lector/engine"
	"lector/engine/ops"
)

// MaxRows caps a chunk where the memory budget does not.
const MaxRows = 4096

// pageBytes is what a device rounds an allocation up to; budgets count it.
const pageBytes = 16 << 10

// tensors is the scratch of a chunk: everything that is neither weights nor state.
type tensors struct {
	wide, headWide, hidden ops.Tensor // [T, W]: the trunk's residual, the head's, what the head reads
	x, y, fe               ops.Tensor // [T, h]: what a block sees, what it gives back
	z, u                   ops.Tensor // [T, W]
	low                    ops.Tensor // [T, r]
	inj                    ops.Tensor // [T, n]

	raw, qkv ops.Tensor // [T, C] before and after the convolution
	zg, o    ops.Tensor // [T, Hv*dv]
	a, b     ops.Tensor // [T, Hv]

	qg   ops.Tensor // [T, Hq*2*hd]
	attn ops.Tensor // [T, Hq*hd]
	iqk  ops.Tensor // [T, (Hi+1)*di]
	kv   ops.Tensor // [T, Hkv*hd] of keys, then of values, on their way to a cache that rounds

	router     ops.Tensor // [T, E]
	score      ops.Tensor // [T, 1]
	sGate, sUp ops.Tensor // [T, shared inner]
	sOut       ops.Tensor // [T, h]
	e          ops.Tensor // [T, ple_embed_dim]
	logits     ops.Tensor // [decodeRows, V]
}

// decodeRows is the most rows whose logits are held at once: a token and its drafts.
const decodeRows = engine.MaxDrafts + 1

// walk visits every tensor with its shape for a chunk of rows: the one layout that sizing, allocation and
// slicing share. The head runs over one row more than the trunk.
func (t *tensors) walk(d *dims, rows int, visit func(t *ops.Tensor, rows, cols int)) {
	for _, w := range []*ops.Tensor{&t.wide, &t.headWide, &t.hidden, &t.z, &t.u} {
		visit(w, rows, d.Wide)
	}
	for _, h := range []*ops.Tensor{&t.x, &t.y, &t.fe, &t.sOut} {
		visit(h, rows, d.Hidden)
	}
	visit(&t.low, rows, d.LowRank)
	visit(&t.inj, rows, d.Streams)
	if d.hasDelta() {
		visit(&t.raw, rows, d.Channels)
		visit(&t.qkv, rows, d.Channels)
		visit(&t.zg, rows, d.Delta.Hv*d.Delta.Dv)
		visit(&t.o, rows, d.Delta.Hv*d.Delta.Dv)
		visit(&t.a, rows, d.Delta.Hv)
		visit(&t.b, rows, d.Delta.Hv)
	}
	visit(&t.qg, rows, 2*d.Attn.Hq*d.Attn.Hd)
	visit(&t.attn, rows, d.Attn.Hq*d.Attn.Hd)
	visit(&t.iqk, rows, (d.Index.N+1)*d.Index.Dim)
	if d.KV != ops.RowsF32 {
		visit(&t.kv, rows, d.Attn.Hkv*d.Attn.Hd)
	}
	visit(&t.router, rows, d.Experts)
	visit(&t.score, rows, 1)
	visit(&t.sGate, rows, d.SharedInner)
	visit(&t.sUp, rows, d.SharedInner)
	if d.PLEDim > 0 {
		visit(&t.e, rows, d.PLEDim)
	}
	visit(&t.logits, decodeRows, d.Vocab)
}

// scratchBytes is what a chunk of rows needs, page rounding included; views adds all-rows logits.
func scratchBytes(d *dims, rows int, views bool) int {
	total := 0
	visit := func(_ *ops.Tensor, rows, cols int) {
		total += (rows*cols*4 + pageBytes - 1) / pageBytes * pageBytes
	}
	new(tensors).walk(d, rows+1, visit)
	if views {
		visit(nil, rows, d.Vocab)
	}
	return total
}

// rowsFit is the largest chunk, at most limit rows, for which bytes gives at most budget; 0 if none does.
func rowsFit(budget, limit int, bytes func(rows int) int) int {
	low, high := 0, min(limit, MaxRows)
	for low < high {
		mid := low + (high-low+1)/2
		if bytes(mid) <= budget {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// scratch is the engine's one set of tensors. It only grows; release gives all of it back.
type scratch struct {
	tensors
	rows int
}

// ensure makes room for a chunk of rows.
func (s *scratch) ensure(be ops.Backend, d *dims, rows int) error {
	if s.rows >= rows {
		return nil
	}
	s.release(be, d)
	var err error
	s.walk(d, rows+1, func(t *ops.Tensor, rows, cols int) {
		if err == nil {
			*t, err = be.Alloc(rows, cols)
		}
	})
	if err != nil {
		s.release(be, d)
		return fmt.Errorf("allocate scratch for %d rows: %w", rows, err)
	}
	s.rows = rows
	return nil
}

// release frees every tensor.
func (s *scratch) release(be ops.Backend, d *dims) {
	s.walk(d, 0, func(t *ops.Tensor, _, _ int) {
		if !t.Empty() {
			be.Free(*t)
		}
		*t = ops.Tensor{}
	})
	s.rows = 0
}

// grow returns a slice of length n, reusing s where it is long enough.
func grow[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
