package gpu_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/shaders"
)

func openFake(t *testing.T, f *fake, o gpu.Options) *gpu.Backend {
	t.Helper()
	b, err := gpu.New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func alloc(t *testing.T, b *gpu.Backend, rows, cols int) ops.Tensor {
	t.Helper()
	x, err := b.Alloc(rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestClassAndGrid(t *testing.T) {
	for class, float := range map[string]bool{"metal-h1": false, "metal-f32": true} {
		if b := openFake(t, newFake(), gpu.Options{Float32: float}); b.Class() != class || b.Grid() != 512 {
			t.Errorf("class %s, grid %d", b.Class(), b.Grid())
		}
	}
}

func TestAllocIsBoundedAndRoundsToPages(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{MemoryBytes: 3 * 4096})
	x := alloc(t, b, 10, 20)
	if len(x.Floats()) != 200 || b.HeldBytes() != 4096 {
		t.Errorf("%d floats, %d bytes held", len(x.Floats()), b.HeldBytes())
	}
	if _, err := b.Alloc(2048, 2); err == nil || !strings.Contains(err.Error(), "16384 bytes wanted, 8192 of the limit of 12288 bytes are left") {
		t.Errorf("beyond the limit: %v", err)
	}
	b.Free(x)
	b.Free(x)
	b.Free(ops.Tensor{})
	if b.HeldBytes() != 0 || f.live != 0 {
		t.Errorf("after Free: %d bytes held, %d buffers live", b.HeldBytes(), f.live)
	}
	for _, s := range [][2]int{{1 << 62, 2}, {-1, 4}, {1 << 40, 1 << 40}} {
		if _, err := b.Alloc(s[0], s[1]); err == nil {
			t.Errorf("%d x %d floats were allocated", s[0], s[1])
		}
	}
	if e, err := b.Alloc(0, 7); err != nil || e.Empty() || len(e.Floats()) != 0 {
		t.Errorf("no rows: %v, %v", e, err)
	}
}

// The fake refuses to close a buffer that unfinished work uses.
func TestFreeWaitsForPendingWork(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	x, y := alloc(t, b, 2, 4), alloc(t, b, 2, 4)
	b.Add(y, x)
	b.Free(x)
	if f.live != 2 {
		t.Fatalf("%d buffers live with work pending, want 2", f.live)
	}
	wait(t, b)
	if f.live != 1 {
		t.Errorf("%d buffers live after Wait, want 1", f.live)
	}
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "after Free") {
			t.Errorf("a freed tensor was taken: %v", v)
		}
	}()
	b.Add(y, x)
}

// Growing a cache copies the old rows and frees them: where there is only room for one of both, Alloc waits.
func TestAllocWaitsForDyingMemory(t *testing.T) {
	b := openFake(t, newFake(), gpu.Options{MemoryBytes: 2 * 4096})
	x, y := alloc(t, b, 1, 1000), alloc(t, b, 1, 1000)
	b.CopyRows(y, 0, x, 0)
	b.Free(x)
	alloc(t, b, 1, 1000)
	if b.HeldBytes() != 2*4096 {
		t.Errorf("%d bytes held", b.HeldBytes())
	}
}

func TestFirstFailureStopsUntilWait(t *testing.T) {
	f := newFake()
	f.broken["dense_silu"] = errors.New("no such kernel")
	b := openFake(t, f, gpu.Options{})
	x := alloc(t, b, 2, 4)
	b.SiLU(x, 1)
	b.Add(x, x)
	b.Linear(alloc(t, b, 2, 3), x, plain(newSource(1), 3, 4, ops.F32))
	if len(f.kernels) != 0 {
		t.Errorf("dispatched %v after a failure", f.kernels)
	}
	if err := b.Wait(context.Background()); !errors.Is(err, gpu.ErrDevice) || !strings.Contains(err.Error(), "dense_silu") {
		t.Errorf("Wait: %v", err)
	}
	b.Add(x, x)
	wait(t, b)
	if !slices.Equal(f.kernels, []string{"dense_add"}) {
		t.Errorf("dispatched %v after Wait", f.kernels)
	}
}

func TestDeviceFaultIsReportedOnceWithItsKernel(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	x := alloc(t, b, 2, 4)
	b.Add(x, x)
	f.fault = errors.New("dense_add: fault in threadgroup 3")
	if err := b.Wait(context.Background()); !errors.Is(err, gpu.ErrDevice) || !strings.Contains(err.Error(), "dense_add: fault") {
		t.Errorf("Wait: %v", err)
	}
	wait(t, b)
	if b.DeviceTime() != time.Millisecond {
		t.Errorf("device time %v", b.DeviceTime())
	}
}

func TestWaitEndsWithItsContextAndTheWorkGoesOn(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	x := alloc(t, b, 2, 4)
	b.Add(x, x)
	b.Free(x)
	f.hold = true
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Wait(ctx); !errors.Is(err, context.Canceled) || f.live != 1 {
		t.Fatalf("Wait: %v with %d buffers live", err, f.live)
	}
	f.hold = false
	wait(t, b)
	if f.live != 0 {
		t.Errorf("%d buffers live after a later Wait", f.live)
	}
	if err := b.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context with nothing pending: %v", err)
	}
}

func TestCommandBuffersStayShort(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	x := alloc(t, b, 2, 4)
	for range 300 {
		b.Add(x, x)
	}
	for range 3 {
		b.SiLU(x, 1)
	}
	wait(t, b)
	var counts []int
	for _, c := range f.buffers {
		counts = append(counts, c.dispatches)
	}
	if !slices.Equal(counts, []int{128, 128, 47}) {
		t.Errorf("dispatches by command buffer: %v", counts)
	}
	if want := []string{"dense_add", "dense_add", "dense_add", "dense_silu"}; !slices.Equal(f.encoders, want) {
		t.Errorf("encoders %v, want %v", f.encoders, want)
	}
}

func TestLongProductsAreCommittedAtOnce(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	src := newSource(1)
	w := plain(src, 1, 2, ops.F32)
	w.Out, w.In, w.Data = 1<<13, 1<<13, make([]byte, 4<<26)
	x, y := alloc(t, b, 4096, w.In), alloc(t, b, 4096, w.Out)
	b.Linear(y, x, w) // 0.55 TFLOP
	if len(f.buffers) != 1 || !f.buffers[0].committed {
		t.Errorf("%d command buffers, not committed", len(f.buffers))
	}
	wait(t, b)
}

// pages is page-aligned host memory, as a mapped file is.
func pages(n, page int) []byte {
	data := make([]byte, n+page)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) & (page - 1)
	return data[skip : skip+n]
}

func TestWeightsAreWrappedWhereMappedAndCopiedOnceElsewhere(t *testing.T) {
	f := newFake()
	mapped := pages(4*4096, f.page)
	b := openFake(t, f, gpu.Options{Mapped: [][]byte{mapped}})
	x, y := alloc(t, b, 1, 8), alloc(t, b, 1, 16)
	linear := func(data []byte) bind {
		b.Linear(y, x, ops.Matrix{Name: "w", Out: 16, In: 8, Format: ops.BF16, Data: data})
		wait(t, b)
		return f.binds["linear_matvec_one"][shaders.LinearData]
	}
	at := 4096 + 128
	got := linear(mapped[at : at+256])
	if len(f.wrapped) != 1 || &got.buffer.data[got.offset] != &mapped[at] || len(got.buffer.data) != 128+256 {
		t.Errorf("mapped weights: %d wraps, bound %d bytes at %d", len(f.wrapped), len(got.buffer.data), got.offset)
	}
	made := f.made
	misaligned := mapped[at+257 : at+257+256]
	misaligned[0] = 7
	if got = linear(misaligned); got.buffer.data[got.offset] != 7 || len(f.wrapped) != 1 {
		t.Error("weights that words cannot be loaded from were not copied")
	}
	own := make([]byte, 256)
	own[255] = 9
	if got = linear(own); got.buffer.data[got.offset+255] != 9 {
		t.Error("weights elsewhere were not copied")
	}
	again := linear(own)
	if again != got || f.made != made+1 {
		t.Errorf("copied again, %d buffers for two small matrices", f.made-made)
	}
	b.Free(x)
	b.Free(y)
	if err := b.Close(); err != nil || f.live != 0 {
		t.Errorf("close: %v, %d buffers live", err, f.live)
	}
}

func TestRopeTablesServeTheWholeChunk(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	x, rope := alloc(t, b, 8, 64), ops.Rope{Rot: 16, Theta: 1e7}
	h := ops.Heads{N: 2, Stride: 32, Dim: 32}
	made := f.made
	bound := map[bind]bool{}
	for range 5 {
		b.Rope(x, h, rope, 512, 1)
		bound[f.binds["dense_rope"][shaders.RopeTable]] = true
		b.Rope(x.Slice(0, 2), h, rope, 512, 4)
		bound[f.binds["dense_rope"][shaders.RopeTable]] = true
	}
	if f.made-made != 1 || len(bound) != 2 {
		t.Errorf("%d allocations, %d tables for two sets of angles", f.made-made, len(bound))
	}
	if len(f.buffers) != 1 || f.buffers[0].committed {
		t.Error("work was handed over for a table")
	}
	for pos := range 20 { // more sets than there are places: a place is written anew once no work reads it
		b.Rope(x, h, rope, pos, 1)
	}
	wait(t, b)
	if f.made-made != 1 {
		t.Errorf("%d allocations for tables", f.made-made)
	}
}

func TestDropScratchLeavesTensorsAndWeights(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	x, w := alloc(t, b, 4, 64), plain(newSource(1), 9, 64, ops.F32)
	run := func() {
		b.Embed(x, w, []int32{1, 2, 3, 8})
		b.Rope(x, ops.Heads{N: 1, Stride: 64, Dim: 64}, ops.Rope{Rot: 16, Theta: 1e7}, 0, 1)
	}
	run()
	held := b.HeldBytes()
	b.DropScratch() // with work pending
	wait(t, b)
	if now := b.HeldBytes(); now >= held {
		t.Errorf("%d bytes held, %d before", now, held)
	}
	run()
	wait(t, b)
	if now := b.HeldBytes(); now != held {
		t.Errorf("%d bytes held after the same work, %d before", now, held)
	}
}

func TestMisfitsPanic(t *testing.T) {
	b := openFake(t, newFake(), gpu.Options{})
	x, y := alloc(t, b, 2, 4), alloc(t, b, 3, 4)
	w := plain(newSource(1), 3, 4, ops.F32)
	cut := w
	cut.Data = cut.Data[:5]
	for name, call := range map[string]func(){
		"Add":      func() { b.Add(x, y) },
		"Linear":   func() { b.Linear(y, x, w) },
		"stored":   func() { b.Linear(x.Slice(0, 1).Reshape(1, 4), x.Slice(0, 1), cut) },
		"Embed":    func() { b.Embed(x, w, []int32{0, 3}) },
		"Conv":     func() { b.Conv(x, x, y, make([]float32, 16), 1, false) },
		"RMSNorm":  func() { b.RMSNorm(x, x, make([]float32, 4), 3, 0) },
		"CopyRows": func() { b.CopyRows(x, 1, y, 0) },
	} {
		func() {
			defer func() {
				if v, ok := recover().(string); !ok || !strings.HasPrefix(v, "gpu: ") {
					t.Errorf("%s: recovered %v", name, v)
				}
			}()
			call()
		}()
	}
	wait(t, b) // and the lock is free
}
