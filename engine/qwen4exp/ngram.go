package qwen4exp

import (
	"sync"
	"sync/atomic"

	"lector/engine/ops"
)

const (
	// warmRows is how many rows of a mapped table one lane brings into memory, one after another.
	warmRows = 4
	// warmLanes is how many lanes read at once: rows are small, so that a disk's latency decides.
	warmLanes = 32
)

// warming brings rows of a mapped table into memory before they are gathered: each is a page that has to come from the
// disk, and whoever gathers them one by one waits for each. Rows of a packed store are read by engine/stream instead.
type warming struct {
	lanes sync.WaitGroup
	next  atomic.Int64 // first id of the next piece
	ended atomic.Bool
	seen  atomic.Uint32 // keeps the reads from being left out
}

// warm starts to touch the rows ids of the table.
func warm(t *ops.Table, ids []int64) *warming {
	w := &warming{}
	if len(t.Shards) == 0 || t.Shards[0].Out == 0 {
		return w
	}
	for range min(warmLanes, (len(ids)+warmRows-1)/warmRows) {
		w.lanes.Go(func() { w.lane(t, ids) })
	}
	return w
}

func (w *warming) lane(t *ops.Table, ids []int64) {
	each := t.Shards[0].Out
	for !w.ended.Load() {
		from := int(w.next.Add(warmRows)) - warmRows
		if from >= len(ids) {
			return
		}
		for _, id := range ids[from:min(from+warmRows, len(ids))] {
			m := &t.Shards[int(id)/each]
			for _, part := range [][]byte{m.Data, m.Scales, m.Biases} {
				w.touch(part, each, int(id)%each)
			}
		}
	}
}

// touch reads the first and the last byte of a row: it lies in one page or two.
func (w *warming) touch(part []byte, each, row int) {
	if size := len(part) / each; size > 0 {
		w.seen.Add(uint32(part[row*size]) + uint32(part[(row+1)*size-1]))
	}
}

// wait returns once every row is there.
func (w *warming) wait() { w.lanes.Wait() }

// end stops what is left.
func (w *warming) end() {
	w.ended.Store(true)
	w.lanes.Wait()
}
