package metaltest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"lector/metal"
)

func (r *rig) kernelNames(t *testing.T) {
	names := r.library.Kernels()
	if !slices.IsSorted(names) || !slices.Contains(names, "suite_step") || !slices.Contains(names, "suite_fill_half") || slices.Contains(names, "suite_fill") {
		t.Errorf("kernels %q", names)
	}
	if _, err := r.library.Pipeline("suite_absent", nil); !errors.Is(err, metal.ErrNoKernel) || !strings.Contains(err.Error(), "suite_absent") {
		t.Errorf("want ErrNoKernel that names suite_absent, got: %v", err)
	}
	p := r.pipeline(t, "suite_fill_half")
	if p.Kernel() != "suite_fill_half" {
		t.Errorf("the pipeline's kernel is %q", p.Kernel())
	}
	if n := p.MaxThreads(); n < 32 || n > r.device.Properties().MaxThreads {
		t.Errorf("it can run in %d threads", n)
	}
	out := r.buffer(t, 64)
	c, e := begin(t, r.queue(t))
	e.SetPipeline(p)
	e.SetBuffer(0, out, 0)
	e.SetBytes(1, words(math.Float32bits(3)))
	e.Dispatch(row(32, 32))
	finish(t, c, e)
	for i := range 32 {
		if got := uint16(out.Bytes()[2*i]) | uint16(out.Bytes()[2*i+1])<<8; got != halfBits(3) {
			t.Fatalf("half %d is %#x", i, got)
		}
	}
}

// constants runs pipelines of one kernel with different constants in one encoder.
func (r *rig) constants(t *testing.T) {
	values := func(b bool, i int32, u uint32, f float32) []metal.Constant {
		return []metal.Constant{{Index: 0, Value: b}, {Index: 1, Value: i}, {Index: 2, Value: u}, {Index: 5, Value: f}}
	}
	first := r.pipeline(t, "suite_constants", values(true, -7, 9, 0.5)...)
	second := r.pipeline(t, "suite_constants", values(false, 12, 1<<20, -2.25)...)
	out := r.buffer(t, 512)
	c, e := begin(t, r.queue(t))
	for i, p := range []metal.Pipeline{first, second} {
		e.SetPipeline(p)
		e.SetBuffer(0, out, 256*i)
		e.Dispatch(row(32, 32))
	}
	finish(t, c, e)
	got := floats(out)
	if want := []float32{1, -7, 9, 0.5, 10}; !slices.Equal(got[:5], want) {
		t.Errorf("first pipeline wrote %v, want %v", got[:5], want)
	}
	if want := []float32{0, 12, 1 << 20, -2.25, 1<<20 + 1}; !slices.Equal(got[64:69], want) {
		t.Errorf("second pipeline wrote %v, want %v", got[64:69], want)
	}
}

func (r *rig) geometry(t *testing.T) {
	p := r.pipeline(t, "suite_geometry")
	pack := func(x, y, z int) uint32 { return uint32(x | y<<8 | z<<16) }
	for _, c := range []struct{ groups, threads metal.Size }{
		{metal.Size{X: 1, Y: 1, Z: 1}, metal.Size{X: 1, Y: 1, Z: 1}},
		{metal.Size{X: 3, Y: 1, Z: 1}, metal.Size{X: 33, Y: 1, Z: 1}},
		{metal.Size{X: 2, Y: 3, Z: 4}, metal.Size{X: 8, Y: 4, Z: 2}},
		{metal.Size{X: 1, Y: 5, Z: 1}, metal.Size{X: 3, Y: 5, Z: 7}},
	} {
		grid := metal.Size{X: c.groups.X * c.threads.X, Y: c.groups.Y * c.threads.Y, Z: c.groups.Z * c.threads.Z}
		out := r.buffer(t, grid.Count()*48)
		cb, e := begin(t, r.queue(t))
		e.SetPipeline(p)
		e.SetBuffer(0, out, 0)
		e.Dispatch(c.groups, c.threads)
		finish(t, cb, e)
		for i := range grid.Count() {
			x, y, z := i%grid.X, i/grid.X%grid.Y, i/grid.X/grid.Y
			lx, ly, lz := x%c.threads.X, y%c.threads.Y, z%c.threads.Z
			index := (lz*c.threads.Y+ly)*c.threads.X + lx
			want := []uint32{pack(x/c.threads.X, y/c.threads.Y, z/c.threads.Z), pack(lx, ly, lz), uint32(index), uint32(index),
				pack(c.groups.X, c.groups.Y, c.groups.Z), pack(c.threads.X, c.threads.Y, c.threads.Z), uint32((c.threads.Count() + 31) / 32), pack(x, y, z)}
			if got := uints(out)[12*i : 12*i+8]; !slices.Equal(got, want) {
				t.Fatalf("%v groups of %v: thread %d,%d,%d wrote %#x, want %#x", c.groups, c.threads, x, y, z, got, want)
			}
		}
	}
}

func (r *rig) collectives(t *testing.T) {
	in, out := r.buffer(t, 5*256*4), r.buffer(t, 5*4)
	for i := range floats(in) {
		floats(in)[i] = float32(i % 11)
	}
	c, e := begin(t, r.queue(t))
	e.SetPipeline(r.pipeline(t, "suite_sum"))
	e.SetBuffer(0, in, 0)
	e.SetBuffer(1, out, 0)
	e.Dispatch(row(5*256, 256))
	finish(t, c, e)
	for g := range 5 {
		var want float32
		for i := range 256 {
			want += float32((g*256 + i) % 11)
		}
		if got := floats(out)[g]; got != want {
			t.Errorf("group %d sums to %v, want %v", g, got, want)
		}
	}
	r.tile(t)
}

func (r *rig) tile(t *testing.T) {
	a, b, sums := r.buffer(t, 128), r.buffer(t, 128), r.buffer(t, 256)
	x := func(i, k int) int { return (i*3+k)%7 - 3 }
	y := func(k, j int) int { return (k+j*5)%9 - 4 }
	for i := range 64 {
		for buffer, v := range map[metal.Buffer]int{a: x(i/8, i%8), b: y(i/8, i%8)} {
			halves := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(buffer.Bytes()))), 64)
			halves[i] = halfBits(v)
		}
	}
	c, e := begin(t, r.queue(t))
	e.SetPipeline(r.pipeline(t, "suite_tile"))
	e.SetBuffer(0, a, 0)
	e.SetBuffer(1, b, 0)
	e.SetBuffer(2, sums, 0)
	e.Dispatch(row(32, 32))
	finish(t, c, e)
	for i := range 64 {
		want := 0
		for k := range 8 {
			want += x(i/8, k) * y(k, i%8)
		}
		if got := floats(sums)[i]; got != float32(want) {
			t.Fatalf("element %d,%d of the product is %v, want %d", i/8, i%8, got, want)
		}
	}
}

func (r *rig) threadgroupMemory(t *testing.T) {
	x := r.buffer(t, 3*100*4)
	for i := range uints(x) {
		uints(x)[i] = uint32(i)
	}
	c, e := begin(t, r.queue(t))
	e.SetPipeline(r.pipeline(t, "suite_reverse"))
	e.SetBuffer(0, x, 0)
	e.SetThreadgroupMemory(0, 400)
	e.Dispatch(row(300, 100))
	finish(t, c, e)
	for i, v := range uints(x) {
		if want := i/100*100 + 99 - i%100; v != uint32(want) {
			t.Fatalf("word %d is %d, want %d", i, v, want)
		}
	}
}

// bindings checks offsets, and that a binding stays until it is replaced.
func (r *rig) bindings(t *testing.T) {
	in, out := r.buffer(t, 1024), r.buffer(t, 1024)
	for i := range uints(in) {
		uints(in)[i] = uint32(1000 * i)
	}
	c, e := begin(t, r.queue(t))
	e.SetPipeline(r.pipeline(t, "suite_copy"))
	e.SetBuffer(0, in, 256)
	e.SetBytes(7, words(16))
	for i := range 3 {
		e.SetBuffer(3, out, 256*i)
		e.Dispatch(row(32, 32))
	}
	finish(t, c, e)
	for i, v := range uints(out) {
		want := uint32(0)
		if i < 192 && i%64 < 16 {
			want = uint32(1000*(64+i%64)) + 1
		}
		if v != want {
			t.Fatalf("word %d is %d, want %d", i, v, want)
		}
	}
}
