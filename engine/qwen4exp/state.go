package qwen4exp

import (
	"fmt"

	"lector/engine"
	"lector/engine/ops"
)

// state is everything that a sequence holds after pos tokens.
type state struct {
	pos      int
	tokens   []engine.Token // [pos]
	layers   []layerState
	mtp      *attnState // rows [0, pos-1) count; a row at pos-1 or beyond is provisional
	residual ops.Tensor // [1, W] of the last token, after the last layer
	next     engine.Token
	draft    engine.Token // follows next; valid when drafted
	drafted  bool
	rows     int           // rows the caches have room for
	fixed    []ops.Tensor  // every tensor that has no interior, in the order of the layers
	spare    []ops.Tensor  // their copies from before the batch in progress
	steps    []*deltaState // whose they are, nil for those of no DeltaNet
}

// layerState is one layer's part of the state.
type layerState struct {
	ple   *pleState
	delta *deltaState // one of delta and attn
	attn  *attnState  // is set
}

// attnState are the caches of an attention layer, one row a token, and the pooled block keys, which are
// recomputed after a restore.
type attnState struct {
	k, v        ops.Cache  // [rows], Hkv heads of hd
	raw, blocks ops.Tensor // [rows, di], [rows/c, di]
}

// tensors are all of an allocation, empty ones included.
func (c *attnState) tensors() []ops.Tensor {
	return append(append(c.k.Tensors(), c.v.Tensors()...), c.raw, c.blocks)
}

// deltaState is a DeltaNet layer's recurrent state.
type deltaState struct {
	s    ops.Tensor // [Hv, dk*dv]
	loss ops.Tensor // [Hv, 2] of the last rounding of s; empty where it is never rounded
	conv ops.Tensor // [K-1, C], oldest first
	kept deltaRows

	oldS, oldConv ops.Tensor // copies from before the batch in progress
	saved         bool       // they are made; else the batch has not come here

	listed [2]listed // s and conv
}

// listed is where a state lists a fixed tensor and its copy.
type listed struct{ now, old *ops.Tensor }

// deltaRows are a batch's inputs of the scan, kept for a replay.
type deltaRows struct{ raw, qkv, g, beta ops.Tensor }

// pleState is the tail of the n-gram embedding's convolution.
type pleState struct {
	tail ops.Tensor // [(Kp-1)*N, W], oldest first
	kept ops.Tensor // [decodeRows, W]
}

// keep copies the inputs of the pass's scan where the pass asks for it.
func (k deltaRows) keep(f *pass) {
	if !f.keep {
		return
	}
	f.be.CopyRows(k.raw, 0, f.raw, 0)
	f.be.CopyRows(k.qkv, 0, f.qkv, 0)
	f.be.CopyRows(k.g, 0, f.a, 0)
	f.be.CopyRows(k.beta, 0, f.b, 0)
}

// newState allocates an empty state; caches grow with the tokens.
func newState(be ops.Backend, net *network) (*state, error) {
	a := allocator{be: be}
	st := &state{next: engine.NoToken, draft: engine.NoToken, layers: make([]layerState, len(net.layers))}
	for i := range net.layers {
		st.layers[i] = newLayerState(&a, &net.dims, &net.layers[i])
		if l := st.layers[i]; l.delta != nil {
			st.fixed = append(st.fixed, l.delta.s, l.delta.conv)
			if net.Cell > 0 {
				st.fixed = append(st.fixed, l.delta.loss)
			}
		}
		if l := st.layers[i]; l.ple != nil {
			st.fixed = append(st.fixed, l.ple.tail)
		}
	}
	if net.mtp != nil {
		st.mtp = &attnState{}
	}
	st.residual = a.get(1, net.Wide)
	st.fixed = append(st.fixed, st.residual)
	for _, t := range st.fixed {
		st.spare = append(st.spare, a.get(t.Rows, t.Cols))
	}
	st.findSteps()
	if a.err != nil {
		a.release()
		return nil, fmt.Errorf("allocate state: %w", a.err)
	}
	return st, nil
}

func newLayerState(a *allocator, d *dims, l *layer) layerState {
	var st layerState
	if l.ple != nil {
		st.ple = &pleState{tail: a.get((d.PLETaps-1)*d.Ngram, d.Wide), kept: a.get(decodeRows, d.Wide)}
	}
	if l.delta == nil {
		st.attn = &attnState{}
		return st
	}
	st.delta = &deltaState{
		s:    a.get(d.Delta.Hv, d.Delta.Dk*d.Delta.Dv),
		conv: a.get(d.Taps-1, d.Channels),
		kept: deltaRows{
			raw: a.get(decodeRows, d.Channels), qkv: a.get(decodeRows, d.Channels),
			g: a.get(decodeRows, d.Delta.Hv), beta: a.get(decodeRows, d.Delta.Hv),
		},
	}
	if d.Cell > 0 {
		st.delta.loss = a.get(d.Delta.Hv, 2)
	}
	return st
}

// caches lists every attention cache, the draft head's last.
func (st *state) caches() []*attnState {
	var out []*attnState
	for i := range st.layers {
		if a := st.layers[i].attn; a != nil {
			out = append(out, a)
		}
	}
	if st.mtp != nil {
		out = append(out, st.mtp)
	}
	return out
}

// minCacheRows is the smallest allocation of a cache.
const minCacheRows = 1024

// reserve makes room for rows in every cache, doubling up to capacity. All caches grow or none does.
func (st *state) reserve(be ops.Backend, d *dims, rows, capacity int) error {
	if rows <= st.rows {
		return nil
	}
	want := min(max(rows, 2*st.rows, minCacheRows), max(capacity, rows))
	a := allocator{be: be}
	old := st.caches()
	grown := make([]attnState, len(old))
	for i := range old {
		grown[i] = attnState{
			k: ops.NewCache(d.KV, want, d.Attn.Hkv, d.Attn.Hd, a.get), v: ops.NewCache(d.KV, want, d.Attn.Hkv, d.Attn.Hd, a.get),
			raw: a.get(want, d.Index.Dim), blocks: a.get(want/d.Ratio+1, d.Index.Dim),
		}
	}
	if a.err != nil {
		a.release()
		return fmt.Errorf("allocate caches for %d tokens: %w", want, a.err)
	}
	for i, c := range old {
		to := grown[i].tensors()
		for j, from := range c.tensors() {
			if !from.Empty() {
				copyStart(be, to[j], from)
				be.Free(from)
			}
		}
		*c = grown[i]
	}
	st.rows = want
	return nil
}

// copyStart copies all of src to the start of dst: one long row, so that the width of either does not matter.
func copyStart(be ops.Backend, dst, src ops.Tensor) {
	n := src.Rows * src.Cols
	whole := dst.Reshape(dst.Rows*dst.Cols, 1).Slice(0, n)
	be.CopyRows(whole.Reshape(1, n), 0, src.Reshape(1, n), 0)
}

// findSteps notes whose the fixed tensors are, and where their copies go.
func (st *state) findSteps() {
	st.steps = make([]*deltaState, len(st.fixed))
	for _, l := range st.layers {
		for i, t := range st.fixed {
			switch {
			case l.delta == nil:
			case t == l.delta.s:
				st.steps[i], l.delta.oldS, l.delta.listed[0] = l.delta, st.spare[i], listed{&st.fixed[i], &st.spare[i]}
			case t == l.delta.conv:
				st.steps[i], l.delta.oldConv, l.delta.listed[1] = l.delta, st.spare[i], listed{&st.fixed[i], &st.spare[i]}
			}
		}
	}
}

// exchange makes the copies of a state what it is, and what it was the copies: a step wrote them so.
func (st *deltaState) exchange() {
	st.s, st.oldS = st.oldS, st.s
	st.conv, st.oldConv = st.oldConv, st.conv
	for _, l := range st.listed {
		*l.now, *l.old = *l.old, *l.now
	}
}

// save copies the fixed state so that putBack can undo the batch that follows. Where a step saves what it changes that is
// left to it.
func (st *state) save(f *pass) {
	for i, t := range st.fixed {
		if d := st.steps[i]; d != nil {
			if d.saved = !f.stepsFew(); !d.saved {
				continue
			}
		}
		f.be.CopyRows(st.spare[i], 0, t, 0)
	}
}

// putBack undoes what the batch did to the fixed state. Cache rows past pos do not count.
func (st *state) putBack(be ops.Backend) {
	for i, t := range st.fixed {
		if d := st.steps[i]; d == nil || d.saved {
			be.CopyRows(t, 0, st.spare[i], 0)
		}
	}
}

// replay puts the recurrent state to after the batch's first rows, from what the batch kept.
func (st *state) replay(f *pass, rows int) {
	st.putBack(f.be)
	for i := range st.layers {
		if l := st.layers[i]; l.delta != nil {
			l.delta.replay(f, rows)
		}
		if l := st.layers[i]; l.ple != nil {
			l.ple.replay(f, rows)
		}
	}
}

// reset makes the state empty again.
func (st *state) reset() {
	for _, t := range st.fixed {
		clear(t.Floats())
	}
	st.pos, st.tokens, st.next, st.draft, st.drafted = 0, nil, engine.NoToken, engine.NoToken, false
}

// release frees everything.
func (st *state) release(be ops.Backend) {
	free := func(ts ...ops.Tensor) {
		for _, t := range ts {
			if !t.Empty() {
				be.Free(t)
			}
		}
	}
	free(st.fixed...)
	free(st.spare...)
	for i := range st.layers {
		if d := st.layers[i].delta; d != nil {
			free(d.kept.raw, d.kept.qkv, d.kept.g, d.kept.beta)
		}
		if p := st.layers[i].ple; p != nil {
			free(p.kept)
		}
	}
	for _, c := range st.caches() {
		free(c.tensors()...)
	}
}

// allocator collects allocations, so that one failure frees them all.
type allocator struct {
	be  ops.Backend
	got []ops.Tensor
	err error
}

func (a *allocator) get(rows, cols int) ops.Tensor {
	if a.err != nil {
		return ops.Tensor{}
	}
	t, err := a.be.Alloc(rows, cols)
	if err != nil {
		a.err = err
		return t
	}
	a.got = append(a.got, t)
	return t
}

func (a *allocator) release() {
	for _, t := range a.got {
		a.be.Free(t)
	}
}
