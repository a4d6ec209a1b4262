package qwen4exp

import "lector/engine/ops"

// attention is gated attention whose rows see a selection of blocks (QSA).
type attention struct {
	q, k, v, out ops.Matrix // [Hq*2*hd, h] per head q then gate, [Hkv*hd, h] twice, [h, Hq*hd]
	qNorm, kNorm []float32  // scales [hd]
	index        ops.Matrix // [(Hi+1)*di, h]: queries, then one key
	iqNorm       []float32  // scale of the indexer's queries [di]
	ikNorm       []float32  // scale of its block keys [di]
}

// forward mixes f.x into f.y and appends the chunk's rows to the caches of st at f.pos.
//
//	[q | gate] = Wq x;  k = Wk x;  v = Wv x;  q, k = rope(RMSNorm(.))
//	o = softmax(q kᵀ / sqrt(hd) over visible(p)) v * sigmoid(gate);  y = Wo o
func (m *attention) forward(f *pass, st *attnState, layer int) {
	be, d := f.be, f.dims
	together := m.projectFew(f, st)
	if !together {
		be.Linear(f.qg, f.x, m.q)
	}
	be.RMSNormHeads(f.qg, d.attnQueries(), m.qNorm, d.Eps)
	be.Rope(f.qg, d.attnQueries(), d.Rope, f.pos, 1)
	m.storeRows(f, st, together)
	index := m.selectBlocks(f, st)
	be.Attend(f.attn, f.qg, st.k, st.v, index, f.pos, d.Ratio, d.Attn)
	f.view.visible(layer, f, index)
	be.Linear(f.y, f.attn, m.out)
}

// storeRows appends the chunk's keys and values to the caches; index queries and the raw index key are in f.iqk after it. With
// together they have been multiplied already.
func (m *attention) storeRows(f *pass, st *attnState, together bool) {
	be, d := f.be, f.dims
	f.into(st.k, func(k ops.Tensor) {
		if !together {
			be.Linear(k, f.x, m.k)
		}
		be.RMSNormHeads(k, d.attnKeys(), m.kNorm, d.Eps)
		be.Rope(k, d.attnKeys(), d.Rope, f.pos, 1)
	})
	if !together {
		f.into(st.v, func(v ops.Tensor) { be.Linear(v, f.x, m.v) })
		be.Linear(f.iqk, f.x, m.index)
	}
}

// appendRows does of forward what the state keeps, and no more.
func (m *attention) appendRows(f *pass, st *attnState) {
	m.storeRows(f, st, false)
	m.appendIndex(f, st)
}

// appendIndex appends the chunk's raw index keys, and the block keys that they complete.
func (m *attention) appendIndex(f *pass, st *attnState) {
	f.be.CopyRows(st.raw, f.pos, f.iqk, f.dims.Index.N*f.dims.Index.Dim)
	m.pool(f.be, f.dims, st, f.pos, f.pos+f.rows)
}

// projectFew multiplies few rows with all that they meet first, where keys and values come to stand in a cache as they are.
func (m *attention) projectFew(f *pass, st *attnState) bool {
	if f.few == nil || st.k.Format != ops.RowsF32 {
		return false
	}
	k, v := st.k.Data.Slice(f.pos, f.pos+f.rows), st.v.Data.Slice(f.pos, f.pos+f.rows)
	f.meet(f.qg, &m.q).meet(k, &m.k).meet(v, &m.v).meet(f.iqk, &m.index).multiply(f.x)
	return true
}

// into appends the rows that compute makes to a cache: in place where it holds float32, rounded from scratch where not.
func (f *pass) into(c ops.Cache, compute func(ops.Tensor)) {
	if c.Format == ops.RowsF32 {
		compute(c.Data.Slice(f.pos, f.pos+f.rows))
		return
	}
	compute(f.kv)
	f.be.StoreRows(c, f.pos, f.kv)
}

// selectBlocks appends the chunk's raw index keys, which f.iqk holds with the queries, and picks the blocks that each row sees.
//
//	iqk = Wi x;  iq = rope(RMSNorm(iq)) at p;  bk_j = rope(RMSNorm(mean of c raw keys)) at j*c
//	score_j(p) = sum over heads relu(iq . bk_j) / sqrt(di);  the B/c best complete blocks
func (m *attention) selectBlocks(f *pass, st *attnState) ops.Index {
	be, d := f.be, f.dims
	m.appendIndex(f, st)
	be.RMSNormHeads(f.iqk, d.Index, m.iqNorm, d.Eps)
	be.Rope(f.iqk, d.Index, d.Rope, f.pos, 1)
	return be.SelectBlocks(f.iqk, d.Index, st.blocks, f.pos, d.Ratio, d.Budget/d.Ratio)
}

// pool computes the keys of the blocks that rows [from, to) complete. A block that holds a row from on is
// computed again: that row may have been a provisional one.
func (m *attention) pool(be ops.Backend, d *dims, st *attnState, from, to int) {
	first, end := from/d.Ratio, to/d.Ratio
	if end <= first {
		return
	}
	bk := st.blocks.Slice(first, end)
	be.MeanBlocks(bk, st.raw, first, d.Ratio)
	be.RMSNormHeads(bk, d.blockKey(), m.ikNorm, d.Eps)
	be.Rope(bk, d.blockKey(), d.Rope, first*d.Ratio, d.Ratio)
}
