package cpu_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

func TestAllocIsZeroedAndBounded(t *testing.T) {
	b := cpu.New(cpu.Options{MemoryBytes: 1000})
	x, err := b.Alloc(10, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range x.Floats() {
		if v != 0 {
			t.Fatal("memory is not zeroed")
		}
	}
	if _, err := b.Alloc(6, 10); err == nil || !strings.Contains(err.Error(), "240 bytes wanted, 200 of the limit of 1000 bytes are left") {
		t.Errorf("beyond the limit: %v", err)
	}
	b.Free(x)
	b.Free(x)
	b.Free(ops.Tensor{})
	if _, err := b.Alloc(25, 10); err != nil {
		t.Errorf("after Free: %v", err)
	}
	if _, err := b.Alloc(1, 1); err == nil {
		t.Error("a second Free of the same tensor gave memory back again")
	}
	for _, s := range [][2]int{{math.MaxInt, 2}, {-1, 4}, {1 << 40, 1 << 40}} {
		if _, err := cpu.New(cpu.Options{}).Alloc(s[0], s[1]); err == nil {
			t.Errorf("%d x %d floats were allocated", s[0], s[1])
		}
	}
	if e, err := b.Alloc(0, 7); err != nil || e.Empty() {
		t.Errorf("no rows: %v, %v", e, err)
	}
}

func TestWaitReportsTheContext(t *testing.T) {
	b := cpu.New(cpu.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	if err := b.Wait(ctx); err != nil {
		t.Errorf("live context: %v", err)
	}
	cancel()
	if err := b.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if b.Class() != "cpu-f32" || b.Grid() != 512 {
		t.Errorf("class %s, grid %d", b.Class(), b.Grid())
	}
}

func TestParallelTakesEveryItemOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		b := cpu.New(cpu.Options{Workers: workers})
		for _, n := range []int{0, 1, 4, 7, 100} {
			for _, grain := range []int{1, 3, 1000} {
				counts := make([]atomic.Int32, n)
				cpu.Parallel(b, n, grain, func(from, to int) {
					for i := from; i < to; i++ {
						counts[i].Add(1)
					}
				})
				for i := range counts {
					if got := counts[i].Load(); got != 1 {
						t.Fatalf("%d workers, %d items by %d: item %d ran %d times", workers, n, grain, i, got)
					}
				}
			}
		}
	}
}

func TestPanicReachesTheCaller(t *testing.T) {
	for _, workers := range []int{1, 3} {
		b := cpu.New(cpu.Options{Workers: workers})
		func() {
			defer func() {
				if v := recover(); v != "broken" {
					t.Errorf("%d workers: recovered %v", workers, v)
				}
			}()
			cpu.Parallel(b, 50, 1, func(from, _ int) {
				if from == 0 || from == 17 {
					panic("broken")
				}
			})
			t.Errorf("%d workers: no panic", workers)
		}()
	}
}

// Two sequences may use one backend at the same time.
func TestConcurrentUse(t *testing.T) {
	b, src := cpu.New(cpu.Options{Workers: 2}), newSource(50)
	c := newAttentionCase(src, attentionShape{ops.AttentionDims{Hq: 4, Hkv: 2, Hd: 16}, 30, 9, 4, 3, 2, 16})
	d := newDeltaCase(src, ops.DeltaDims{Hk: 2, Hv: 4, Dk: 16, Dv: 16}, 9)
	c2, d2 := c.run(b, []int{0, 9}), d.run(b, []int{0, 9})
	done := make(chan bool)
	for _, p := range []struct {
		opCase
		want []float32
	}{{c, c2}, {d, d2}} {
		go func() {
			ok := true
			for range 20 {
				ok = ok && differs(p.want, p.run(b, []int{0, 9})) < 0
			}
			done <- ok
		}()
	}
	for range 2 {
		if !<-done {
			t.Error("results changed under concurrent use")
		}
	}
}

func TestShapesThatDoNotFitPanic(t *testing.T) {
	b, src := cpu.New(cpu.Options{}), newSource(51)
	x, y := put(b, src.normal(6, 1), 3), put(b, src.normal(8, 1), 4)
	short := plainMatrix(src, 4, 3, ops.F32).Matrix
	short.Data = short.Data[:40]
	odd := affineMatrix(src, 4, 64, 4, 32, ops.BF16).Matrix
	odd.Bits = 5
	for name, f := range map[string]func(){
		"Linear: rows":  func() { b.Linear(y.Slice(0, 1), x, plainMatrix(src, 4, 3, ops.F32).Matrix) },
		"Linear: bytes": func() { b.Linear(y, x, short) },
		"Linear: bits":  func() { b.Embed(put(b, make([]float32, 64), 64), odd, []int32{0}) },
		"Embed: id":     func() { b.Embed(x, plainMatrix(src, 4, 3, ops.F32).Matrix, []int32{0, 4}) },
		"Gather: row": func() {
			b.Gather(x, ops.Table{Shards: []ops.Matrix{plainMatrix(src, 4, 3, ops.F32).Matrix}, Rows: 4, Dim: 3}, []int64{0, 4})
		},
		"RMSNorm: group": func() { b.RMSNorm(x, x, make([]float32, 3), 2, 1e-6) },
		"Add":            func() { b.Add(x, y) },
		"Conv: alias":    func() { b.Conv(x, x, put(b, make([]float32, 3), 3), make([]float32, 6), 1, false) },
		"Rope: head":     func() { b.Rope(x, ops.Heads{N: 2, Stride: 2, Dim: 2}, ops.Rope{Rot: 2, Theta: 10}, 0, 1) },
		"Route: k":       func() { b.Route(x, 4, true) },
		"CopyRows":       func() { b.CopyRows(y, 1, x, 0) },
	} {
		func() {
			defer func() {
				if v := recover(); v == nil {
					t.Errorf("%s: no panic", name)
				} else if s, ok := v.(string); !ok || !strings.HasPrefix(s, "cpu: ") {
					t.Errorf("%s: panic %v names no operation", name, v)
				}
			}()
			f()
		}()
	}
}
