package gpu

import (
	"fmt"
	"math"
	"sync"

	"lector/engine/ops"
	"lector/shaders"
)

const (
	pleGather kernel[shaders.GatherParams]  = "ple_gather"
	pleGate   kernel[shaders.PLEGateParams] = "ple_gate"
)

// Gather: e[r] = the rows ids[r*n : (r+1)*n] of the table side by side. The host copies the rows as they are stored, for
// what the device may keep resident is less than the table; the device decodes them.
func (b *Backend) Gather(y ops.Tensor, t ops.Table, ids []int64) {
	fit(t.Dim > 0 && y.Rows*y.Cols == len(ids)*t.Dim && y.Cols%t.Dim == 0, "Gather", y)
	each := shapes().FitTable(&t)
	for _, id := range ids {
		if id < 0 || id >= int64(t.Rows) {
			panic(fmt.Sprintf("gpu: Gather: row %d outside [0, %d)", id, t.Rows))
		}
	}
	if len(ids) == 0 {
		return
	}
	e := b.begin()
	defer e.end()
	for from := 0; from < len(ids); {
		m := &t.Shards[int(ids[from])/each]
		to := from + 1 // rows that are stored in one way go together
		for to < len(ids) && formatOf(&t.Shards[int(ids[to])/each]) == formatOf(m) {
			to++
		}
		e.gatherRows(at(y).plus(4*from*t.Dim), &t, each, ids[from:to])
		from = to
	}
}

// gatherRows decodes rows that are stored in one way.
func (e *encoding) gatherRows(y region, t *ops.Table, each int, ids []int64) {
	m := &t.Shards[int(ids[0])/each]
	data := upload(e, copyRows(t, each, ids, func(m *ops.Matrix) []byte { return m.Data }))
	scales, biases := data, data
	if m.Format == ops.Affine {
		scales = upload(e, copyRows(t, each, ids, func(m *ops.Matrix) []byte { return m.Scales }))
		biases = upload(e, copyRows(t, each, ids, func(m *ops.Matrix) []byte { return m.Biases }))
	}
	dispatch(e, pleGather, shaders.GatherParams{Rows: uint32(len(ids)), Dim: uint32(t.Dim)}, launch{
		buffers:   []region{shaders.GatherE: y, shaders.GatherData: data, shaders.GatherScales: scales, shaders.GatherBiases: biases},
		groups:    over(len(ids)*blocks(t.Dim, 8), shaders.BlockThreads),
		threads:   shaders.BlockThreads,
		constants: formatOf(m),
	})
}

// gatherLane is how many rows a goroutine copies: rows of a mapped table come from the disk as they are touched, and
// several such waits go side by side.
const gatherLane = 256

// copyRows copies one part of the stored bytes of rows, one row after another.
func copyRows(t *ops.Table, each int, ids []int64, part func(m *ops.Matrix) []byte) []byte {
	size := len(part(&t.Shards[int(ids[0])/each])) / each
	out := make([]byte, len(ids)*size)
	var lanes sync.WaitGroup
	for from := 0; from < len(ids); from += gatherLane {
		lanes.Go(func() {
			for i := from; i < min(from+gatherLane, len(ids)); i++ {
				row := int(ids[i]) % each * size
				copy(out[i*size:(i+1)*size], part(&t.Shards[int(ids[i])/each])[row:])
			}
		})
	}
	lanes.Wait()
	return out
}

// PLEGate: s_g = key_g . query_g / sqrt(h); v_g = sigmoid(sign(s) sqrt(max(|s|, 1e-6))) * val, sign(0) = 0.
func (b *Backend) PLEGate(v, key, query, val ops.Tensor) {
	fit(val.Cols > 0 && key.Cols%val.Cols == 0 && key.Cols > 0 && key.Rows == val.Rows && ops.Same(key, query, v), "PLEGate", v, key, query, val)
	e := b.begin()
	defer e.end()
	n := key.Cols / val.Cols
	p := shaders.PLEGateParams{
		Items: uint32(key.Rows * n), Streams: uint32(n), Width: uint32(val.Cols), Scale: float32(1 / math.Sqrt(float64(val.Cols))),
	}
	dispatch(e, pleGate, p, launch{
		buffers: []region{shaders.PleGateV: at(v), shaders.PleGateKey: at(key), shaders.PleGateQuery: at(query), shaders.PleGateVal: at(val)},
		groups:  over(int(p.Items), shaders.BlockSimds), threads: shaders.BlockThreads,
	})
}
