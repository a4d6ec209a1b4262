package qwen4exp

import (
	"fmt"

	"lector/engine"
	"lector/engine/ops"
)

// MaxRows caps a chunk where neither Options nor the memory does.
const MaxRows = 4096

// pageBytes is what an allocation is rounded up to where a backend does not say: the page of Apple's processors.
const pageBytes = 16 << 10

// pages rounds the bytes of one allocation up.
func pages(be ops.Backend, bytes int) int {
	page := pageBytes
	if s, ok := be.(ops.Scratch); ok {
		page = s.PageBytes()
	}
	return (max(bytes, 1) + page - 1) / page * page
}

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

// ScratchBytes is what a chunk of rows takes of the backend's memory, page rounding included: the tensors, and what the
// backend works in beside them. views adds all-rows logits.
func (e *Engine) ScratchBytes(rows int, views bool) int {
	d, total := &e.net.dims, 0
	visit := func(_ *ops.Tensor, rows, cols int) { total += pages(e.be, rows*cols*4) }
	new(tensors).walk(d, rows+1, visit)
	if views {
		visit(nil, rows, d.Vocab)
	}
	w := e.work(rows)
	if s, ok := e.be.(ops.Scratch); ok {
		return total + s.WorkBytes(w)
	}
	return total + e.be.ExpertBytes(w.Experts, w.Rows)
}

// work is what a chunk of rows asks of a backend. The head has one row more.
func (e *Engine) work(rows int) ops.Work {
	d, packed := &e.net.dims, e.checkpoint.Packed()
	w := ops.Work{
		Rows: rows + 1, Context: e.checkpoint.Config().MaxTokens, Choices: d.Experts, Logits: d.Vocab,
		Experts: ops.ExpertDims{Width: d.Hidden, Inner: d.Inner, TopK: d.TopK, Stored: packed != nil},
		Ratio:   d.Ratio, Budget: d.Budget / d.Ratio, Rot: d.Rope.Rot, Vectors: d.Delta.Hv,
		Wide: d.Wide, Low: d.LowRank, Attn: d.Attn,
	}
	for i := range e.net.layers {
		p := e.net.layers[i].ple
		if p == nil {
			continue
		}
		row := 0 // the longest of the table's rows
		if packed != nil {
			row = packed.NgramRowBytes(p.stored)
		}
		for _, m := range p.table.Shards {
			row = max(row, m.Bytes()/max(m.Out, 1))
		}
		w.Ngrams = max(w.Ngrams, row*len(p.hash.Vocab))
	}
	return w
}

// rowsFit is the largest chunk, at most limit rows, for which bytes gives at most budget; 0 if none does.
func rowsFit(budget, limit int, bytes func(rows int) int) int {
	low, high := 0, limit
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
func (s *scratch) ensure(e *Engine, rows int) error {
	if s.rows >= rows {
		return nil
	}
	s.release(e.be, &e.net.dims)
	var err error
	s.walk(&e.net.dims, rows+1, func(t *ops.Tensor, rows, cols int) {
		if err == nil {
			*t, err = e.be.Alloc(rows, cols)
		}
	})
	if own, ok := e.be.(ops.Scratch); ok && err == nil {
		err = own.Reserve(e.work(rows))
	}
	if err != nil {
		s.release(e.be, &e.net.dims)
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
