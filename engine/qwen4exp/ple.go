package qwen4exp

import (
	"time"

	"lector/engine/ops"
	"lector/engine/stream"
	"lector/engine/weights"
)

// ple is the hashed n-gram embedding in front of a layer.
type ple struct {
	hash       weights.NgramHash
	table      ops.Table                       // without shards where rows are stored
	stored     int                             // index of the table in a packed store, -1 where it is in memory
	row        func(weights.Tensor) ops.Matrix // operands of gathered rows
	key, value ops.Matrix                      // [W, e], [h, e] with e = ple_embed_dim
	normKey    []float32                       // scales [W]
	normQuery  []float32
	normConv   []float32
	conv       []float32 // [W, Kp], dilated by N
}

// forward adds the embedding of the chunk's n-grams to f.wide and advances st.
//
//	e = rows of the table at the hashed n-grams of p, side by side
//	key = groupedRMSNorm(Wk e);  query = groupedRMSNorm(wide);  val = Wv e
//	s_g = key_g . query_g / sqrt(h);  v_g = sigmoid(sign(s_g) sqrt(max(|s_g|, 1e-6))) val
//	z = groupedRMSNorm(v);  wide += v + silu(conv z)
func (m *ple) forward(f *pass, st *pleState) error {
	be, d := f.be, f.dims
	if f.skips("ple") {
		return nil
	}
	start := time.Now()
	table, ids, err := m.rows(f)
	if err != nil {
		return err
	}
	f.timer.gathered(start) // and not what was put off before, which Gather may run
	be.Gather(f.e, table, ids)
	be.Linear(f.z, f.e, m.key)
	be.RMSNorm(f.z, f.z, m.normKey, d.Hidden, d.Eps)
	be.RMSNorm(f.u, f.wide, m.normQuery, d.Hidden, d.Eps)
	be.Linear(f.x, f.e, m.value)
	be.PLEGate(f.z, f.z, f.u, f.x)
	be.Add(f.wide, f.z)
	be.RMSNorm(f.z, f.z, m.normConv, d.Hidden, d.Eps)
	be.Conv(f.u, f.z, st.tail, m.conv, d.Ngram, true)
	be.ShiftTail(st.tail, f.z)
	if st.kept.Rows > 0 && f.keep {
		be.CopyRows(st.kept, 0, f.z, 0)
	}
	be.Add(f.wide, f.u)
	return nil
}

// ngrams are the rows that a chunk takes from one layer's table, on their way.
type ngrams struct {
	ids      []int64           // heads ids a row of the chunk
	gathered *stream.Gathering // of a packed store, else nil
	warming  *warming          // of a mapped table, else nil
}

// gather starts to read the rows of the chunk's n-grams, which depend on tokens alone, for every layer that needs some.
func (m *network) gather(f *pass) {
	if f.skips("ple") {
		return
	}
	for i := range m.layers[:f.layerCap(len(m.layers))] {
		p := m.layers[i].ple
		if p == nil {
			continue
		}
		n := ngrams{ids: p.rowIDs(f)}
		if f.store != nil {
			n.gathered = f.store.Gather(f.ctx, p.stored, n.ids)
		} else {
			n.warming = warm(&p.table, n.ids)
		}
		f.gathering[p] = n
	}
}

// endGather stops what is being read.
func (f *pass) endGather() {
	for _, n := range f.gathering {
		if n.gathered != nil {
			n.gathered.End()
		} else {
			n.warming.end()
		}
	}
	clear(f.gathering)
}

// rows is the table to gather from and the ids in it: the whole table, or the rows that were read for this chunk.
func (m *ple) rows(f *pass) (ops.Table, []int64, error) {
	n := f.gathering[m]
	if n.gathered == nil {
		n.warming.wait()
		return m.table, n.ids, nil
	}
	rows, err := n.gathered.Wait()
	if err != nil {
		return ops.Table{}, nil, err
	}
	table := ops.Table{Rows: rows.Each * len(rows.Shards), Dim: m.table.Dim}
	for _, s := range rows.Shards {
		table.Shards = append(table.Shards, m.row(s))
	}
	return table, rows.IDs, nil
}

// rowIDs hashes the chunk's n-grams: heads ids a row.
func (m *ple) rowIDs(f *pass) []int64 {
	ids := make([]int64, f.rows*len(m.hash.Vocab))
	m.hash.RowIDs(ids, f.history, len(f.history)-f.rows, f.dims.EOS)
	return ids
}

// replay advances st, put back to before a batch, by the batch's first rows.
func (st *pleState) replay(f *pass, rows int) {
	f.be.ShiftTail(st.tail, st.kept.Slice(0, rows))
}
