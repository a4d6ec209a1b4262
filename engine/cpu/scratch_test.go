package cpu_test

import (
	"runtime"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// What an operation works in is made once: a collection between two chunks does not throw it away.
func TestScratchOutlivesCollections(t *testing.T) {
	src := newSource(70)
	m := affineMatrix(src, 96, 512, 4, 64, ops.BF16)
	shape := expertShape{rows: 200, h: 64, inner: 64, n: 8, k: 4, live: 8}
	_, records, logits := newExpertCase(src, shape, true)
	experts := ops.Experts{N: shape.n, Inner: shape.inner, At: func(e int) ops.Expert { return records[e] }}
	d, h := ops.AttentionDims{Hq: 4, Hkv: 2, Hd: 32}, ops.Heads{N: 1, Stride: 32, Dim: 32}
	const rows, pos = 24, 400
	for _, class := range cpu.Classes() {
		b := cpu.New(cpu.Options{Class: class, Workers: 1})
		x, y := put(b, src.normal(40*512, 1), 512), put(b, garbage(40*96), 96)
		in, out := put(b, src.normal(shape.rows*shape.h, 1), shape.h), put(b, garbage(shape.rows*shape.h), shape.h)
		route := b.Route(put(b, logits, shape.n), shape.k, true)
		k, v := put(b, src.normal((pos+rows)*64, 1), 64), put(b, src.normal((pos+rows)*64, 1), 64)
		qg, o := put(b, src.normal(rows*256, 1), 256), put(b, garbage(rows*128), 128)
		index := b.SelectBlocks(put(b, src.normal(rows*32, 1), 32), h, put(b, src.normal((pos+rows)/4*32, 1), 32), pos, 4, 50)
		for name, run := range map[string]func(){
			"a product of 40 rows": func() { b.Linear(y, x, m.Matrix) },
			"experts of 200 rows":  func() { b.RunExperts(out, in, experts, route) },
			"attention of 24 rows": func() { b.Attend(o, qg, ops.CacheOf(k, d.Hkv), ops.CacheOf(v, d.Hkv), index, pos, 4, d) },
		} {
			if each := allocated(run); each > 16<<10 { // a panel alone has 32 KB
				t.Errorf("%s: %s allocates %d bytes each time", class, name, each)
			}
		}
	}
}

// allocated is how many bytes a call of f allocates once it has been called.
func allocated(f func()) uint64 {
	f()
	var before, after runtime.MemStats
	const calls = 20
	runtime.ReadMemStats(&before)
	for range calls {
		runtime.GC()
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / calls
}
