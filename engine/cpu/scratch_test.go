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
	for _, class := range cpu.Classes() {
		b := cpu.New(cpu.Options{Class: class, Workers: 1})
		x, y := put(b, src.normal(40*512, 1), 512), put(b, garbage(40*96), 96)
		b.Linear(y, x, m.Matrix)
		var before, after runtime.MemStats
		const calls = 20
		runtime.ReadMemStats(&before)
		for range calls {
			runtime.GC()
			b.Linear(y, x, m.Matrix)
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / calls; each > 16<<10 { // a panel alone has 32 KB
			t.Errorf("%s: a product of 40 rows allocates %d bytes each time", class, each)
		}
	}
}
