package gpu_test

import (
	"testing"

	"lector/engine/gpu"
	"lector/engine/ops"
)

func TestGather(t *testing.T) {
	b := open(t, gpu.Options{})
	src := newSource(6)
	for name, shards := range map[string][]ops.Matrix{
		"bf16":        {plain(src, 7, 20, ops.BF16), plain(src, 7, 20, ops.BF16)},
		"4 bits":      {affine(src, 9, 160, 4, 32, ops.BF16)},
		"3 bits":      {affine(src, 9, 64, 3, 64, ops.F16)},
		"8 bits, f32": {affine(src, 9, 64, 8, 32, ops.F32)},
		"mixed":       {affine(src, 5, 64, 2, 32, ops.BF16), plain(src, 5, 64, ops.BF16), affine(src, 5, 64, 6, 32, ops.BF16)},
	} {
		t.Run(name, func(t *testing.T) {
			table := ops.Table{Shards: shards, Dim: shards[0].In, Rows: len(shards) * shards[0].Out}
			ids := make([]int64, 75*4)
			for i := range ids {
				ids[i] = int64(i * 5 % table.Rows)
			}
			compare(t, b, 1e-6, func(b ops.Backend) []ops.Tensor {
				e := blank(t, b, 75, 4*table.Dim)
				b.Gather(e, table, ids)
				return []ops.Tensor{e}
			})
		})
	}
}

func TestPLEGate(t *testing.T) {
	b := open(t, gpu.Options{})
	src := newSource(7)
	for _, d := range [][3]int{{1, 1, 8}, {5, 4, 72}, {3, 2, 200}} { // rows, streams, width
		key, query, val := src.normal(d[0]*d[1]*d[2], 1), src.normal(d[0]*d[1]*d[2], 1), src.normal(d[0]*d[2], 1)
		clear(key[:d[2]]) // s = 0 has no sign
		compare(t, b, 2e-6, func(b ops.Backend) []ops.Tensor {
			k, q, x := put(t, b, key, d[1]*d[2]), put(t, b, query, d[1]*d[2]), put(t, b, val, d[2])
			v := blank(t, b, d[0], d[1]*d[2])
			b.PLEGate(v, k, q, x)
			b.PLEGate(k, k, q, x) // in place
			return []ops.Tensor{v, k}
		})
	}
}
