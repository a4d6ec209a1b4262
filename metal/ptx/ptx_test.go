package ptx_test

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lector/metal"
	"lector/metal/metaltest"
	"lector/metal/ptx"
)

var (
	cacheFlag = flag.String("ptx.cache", "", "folder of translated kernels; where the compiler is missing, it must hold those of the tests")
	faultFlag = flag.Bool("ptx.fault", false, "run TestFault's kernel in this process, which loses the device")
)

//go:embed testdata/device.metal
var kernels string

func deviceSource() metal.Source { return metal.Source{Name: "device.metal", Text: kernels} }

// open opens the first GPU; the test is skipped where there is none.
func open(t *testing.T, o ptx.Options) metal.Device {
	t.Helper()
	if o.Cache == "" {
		o.Cache = *cacheFlag
	}
	if o.Cache == "" {
		o.Cache = filepath.Join(os.TempDir(), "lector-ptx-test")
	}
	d, err := ptx.Open(o)
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	open(t, ptx.Options{}) // skips once, not for each part
	metaltest.Run(t, func(t *testing.T) metal.Device { return open(t, ptx.Options{}) })
}

// rig is a device with the library of this package's tests.
type rig struct {
	metal.Device
	library metal.Library
	queue   metal.Queue
}

func newRig(t *testing.T, o ptx.Options) *rig {
	t.Helper()
	d := open(t, o)
	l, err := d.Compile(deviceSource())
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQueue("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(q.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return &rig{d, l, q}
}

func (r *rig) buffer(t *testing.T, size int) metal.Buffer {
	t.Helper()
	b, err := r.NewBuffer(size)
	return kept(t, b, err)
}

func kept(t *testing.T, b metal.Buffer, err error) metal.Buffer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// dispatch is one kernel run to its end.
type dispatch struct {
	kernel    string
	constants []metal.Constant
	buffers   []any // metal.Buffer, or a uint32 as a block
	memory    map[int]int
	groups    int
	threads   int
}

func (r *rig) run(t *testing.T, x dispatch) error {
	t.Helper()
	p, err := r.library.Pipeline(x.kernel, x.constants)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := r.queue.NewCommandBuffer("test")
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Encoder("encoder")
	if err != nil {
		t.Fatal(err)
	}
	e.SetPipeline(p)
	for i, b := range x.buffers {
		switch b := b.(type) {
		case metal.Buffer:
			e.SetBuffer(i, b, 0)
		case uint32:
			e.SetBytes(i, binary.LittleEndian.AppendUint32(nil, b))
		}
	}
	for i, n := range x.memory {
		e.SetThreadgroupMemory(i, n)
	}
	e.Dispatch(metal.Size{X: x.groups, Y: 1, Z: 1}, metal.Size{X: x.threads, Y: 1, Z: 1})
	e.End()
	if err := c.Commit(); err != nil {
		return err
	}
	return c.Wait(context.Background())
}

func (r *rig) mustRun(t *testing.T, x dispatch) {
	t.Helper()
	if err := r.run(t, x); err != nil {
		t.Fatal(err)
	}
}

func view[T any](b metal.Buffer) []T {
	var one T
	data := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(one)))
}

// halfOf is a small whole number as a half.
func halfOf(n int) uint16 {
	if n == 0 {
		return 0
	}
	v := math.Float32bits(float32(n))
	return uint16(v>>16&0x8000 | (v>>23&0xff-112)<<10&0x7c00 | v>>13&0x3ff)
}

// Every way of reading and writing a matrix gives its elements their places, whatever the lane map.
func TestMatrices(t *testing.T) {
	r := newRig(t, ptx.Options{})
	x := func(i, k int) int { return (i*5+k*3)%11 - 5 }
	y := func(k, j int) int { return (k*7+j*2)%13 - 6 }
	for _, stride := range []int{8, 9, 20} {
		a, b, c := r.buffer(t, 8*stride*4), r.buffer(t, 8*stride*4), r.buffer(t, 8*stride*4)
		for _, typ := range []string{"half", "float"} {
			for mode := range 8 {
				left, right, result := mode&1 != 0, mode&2 != 0, mode&4 != 0
				at := func(across bool, row, column int) int {
					if across {
						row, column = column, row
					}
					return row*stride + column
				}
				for i := range 64 {
					if typ == "half" {
						view[uint16](a)[at(left, i/8, i%8)], view[uint16](b)[at(right, i/8, i%8)] = halfOf(x(i/8, i%8)), halfOf(y(i/8, i%8))
					} else {
						view[float32](a)[at(left, i/8, i%8)], view[float32](b)[at(right, i/8, i%8)] = float32(x(i/8, i%8)), float32(y(i/8, i%8))
					}
				}
				r.mustRun(t, dispatch{kernel: "device_product_" + typ, buffers: []any{a, b, c, uint32(stride)}, groups: 1, threads: 32,
					constants: []metal.Constant{{Index: 0, Value: left}, {Index: 1, Value: right}, {Index: 2, Value: result}}})
				for i := range 64 {
					want := 2 * x(i/8, i%8)
					for k := range 8 {
						want += x(i/8, k) * y(k, i%8)
					}
					if got := view[float32](c)[at(result, i/8, i%8)]; got != float32(want) {
						t.Fatalf("%s, stride %d, left, right, result across %v %v %v: element %d,%d is %v, want %d", typ, stride, left, right, result, i/8, i%8, got, want)
					}
				}
			}
		}
	}
}

// Functions are near the true ones, in units of the last place, over the ranges that kernels use.
func TestMathematics(t *testing.T) {
	r := newRig(t, ptx.Options{})
	const n = 4096
	in, out := r.buffer(t, 4*n), r.buffer(t, 7*4*n)
	for i := range n {
		view[float32](in)[i] = float32((float64(i)/n - 0.5) * 40)
		if i%4 == 0 { // near 1 a logarithm is small
			view[float32](in)[i] = 1 + float32(i-n/2)*1e-6
		}
	}
	r.mustRun(t, dispatch{kernel: "device_mathematics", buffers: []any{in, out, uint32(n)}, groups: n / 128, threads: 128})
	functions := []struct {
		name string
		of   func(float64) float64
		ulps float64
	}{
		{"exp", math.Exp, 4}, {"log", func(x float64) float64 { return math.Log(math.Abs(x)) }, 4}, {"tanh", math.Tanh, 8},
		{"sin", math.Sin, 1e5}, {"cos", math.Cos, 1e5},
		{"rsqrt", func(x float64) float64 { return 1 / math.Sqrt(math.Abs(x)) }, 2},
		{"pow", func(x float64) float64 { return math.Pow(math.Abs(x), 1.5) }, 64},
	}
	for f, fn := range functions {
		worst, at := 0.0, float32(0)
		for i := range n {
			x := view[float32](in)[i]
			want := fn.of(float64(x))
			unit := max(math.Abs(want), 1e-38) * 0x1p-23
			if fn.name == "sin" || fn.name == "cos" {
				unit = 0x1p-23
			}
			if d := math.Abs(float64(view[float32](out)[f*n+i])-want) / unit; !(d <= worst) && !(math.IsInf(want, 0) && math.IsInf(float64(view[float32](out)[f*n+i]), 0)) {
				worst, at = d, x
			}
		}
		t.Logf("%s: %.1f units of the last place, at %v", fn.name, worst, at)
		if !(worst <= fn.ulps) {
			t.Errorf("%s(%v) is wrong by %.1f units of the last place", fn.name, at, worst)
		}
	}
}

// A kernel with several threadgroup arguments finds each at its own place.
func TestThreadgroupArguments(t *testing.T) {
	r := newRig(t, ptx.Options{})
	x := r.buffer(t, 256)
	for i := range 64 {
		view[uint32](x)[i] = uint32(i)
	}
	r.mustRun(t, dispatch{kernel: "device_exchange", buffers: []any{x}, memory: map[int]int{0: 256, 3: 256}, groups: 1, threads: 64})
	for i, v := range view[uint32](x) {
		if want := uint32(63-i) + 1000*uint32(i^1); v != want {
			t.Fatalf("word %d is %d, want %d", i, v, want)
		}
	}
	err := r.run(t, dispatch{kernel: "device_exchange", buffers: []any{x}, memory: map[int]int{0: 32 << 10, 3: 32 << 10}, groups: 1, threads: 64})
	if err == nil || !strings.Contains(err.Error(), "device_exchange") {
		t.Errorf("more threadgroup memory than there is: %v", err)
	}
}

func TestLanes(t *testing.T) {
	r := newRig(t, ptx.Options{})
	out := r.buffer(t, 32*16*4)
	r.mustRun(t, dispatch{kernel: "device_lanes", buffers: []any{out}, groups: 1, threads: 32})
	v := func(lane int) int { return lane*3 + 1 }
	prefix, xor := 0, 0
	for lane := range 32 {
		xor ^= v(lane)
	}
	for lane := range 32 {
		up, down := v(lane), v(lane)
		if lane >= 2 {
			up = v(lane - 2)
		}
		if lane < 29 {
			down = v(lane + 3)
		}
		want := []uint32{1520, uint32(v(31)), 1, uint32(prefix + v(lane)), uint32(prefix), uint32(v(lane ^ 5)), uint32(up), uint32(down),
			uint32(v(9)), 1, 1, 496, 496, uint32(xor)}
		if got := view[uint32](out)[lane*16 : lane*16+14]; !slices.Equal(got, want) {
			t.Errorf("lane %d: %v, want %v", lane, got, want)
		}
		prefix += v(lane)
	}
}

func TestAtomics(t *testing.T) {
	r := newRig(t, ptx.Options{})
	counters, sum := r.buffer(t, 32), r.buffer(t, 4)
	r.mustRun(t, dispatch{kernel: "device_count", buffers: []any{counters, sum}, groups: 64, threads: 128})
	if got := view[uint32](counters)[:5]; !slices.Equal(got, []uint32{2048, 2048, 2048, 2048, 8191}) || view[float32](sum)[0] != 4096 {
		t.Errorf("counted %v and %v", got, view[float32](sum)[0])
	}
}

func TestOptionalConstant(t *testing.T) {
	r := newRig(t, ptx.Options{})
	out := r.buffer(t, 4)
	for want, constants := range map[uint32][]metal.Constant{7: nil, 12: {{Index: 3, Value: uint32(12)}}} {
		r.mustRun(t, dispatch{kernel: "device_optional", constants: constants, buffers: []any{out}, groups: 1, threads: 1})
		if got := view[uint32](out)[0]; got != want {
			t.Errorf("constants %v: %d, want %d", constants, got, want)
		}
	}
	if _, err := r.library.Pipeline("device_product_half", nil); err == nil || !strings.Contains(err.Error(), "left_across") {
		t.Errorf("a pipeline without its constants: %v", err)
	}
}

// Memory of the device goes to the host and back when it must, and only then.
func TestDeviceBuffer(t *testing.T) {
	r := newRig(t, ptx.Options{})
	memory, ok := r.Device.(metal.LocalMemory)
	if !ok {
		t.Fatal("the device gives no memory of its own")
	}
	b, err := memory.NewLocalBuffer(256)
	x := kept(t, b, err)
	exchange := dispatch{kernel: "device_exchange", buffers: []any{x}, memory: map[int]int{0: 256, 3: 256}, groups: 1, threads: 64}
	r.mustRun(t, exchange)
	if got := view[uint32](x); !slices.Equal(got, make([]uint32, 64)) {
		t.Fatalf("a new buffer does not hold zeros: %v", got)
	}
	want := make([]uint32, 64)
	for i := range want {
		want[i] = uint32(i + 1)
	}
	copy(view[uint32](x), want)
	for range 2 {
		r.mustRun(t, exchange)
		next := make([]uint32, 64)
		for i := range next {
			next[i] = want[63-i] + 1000*want[i^1]
		}
		want = next
	}
	if got := view[uint32](x); !slices.Equal(got, want) {
		t.Errorf("after two runs: %v, want %v", got, want)
	}
	for _, looked := range []bool{true, false} { // a write after a look goes with the copy, else straight to the device
		if !looked {
			r.mustRun(t, exchange)
		}
		if err := b.Write(8, []byte{1, 2, 3, 4}); err != nil {
			t.Fatal(err)
		}
		if got := view[uint32](x)[2]; got != 0x04030201 {
			t.Errorf("after a write: %#x", got)
		}
	}
	if err := b.Write(253, []byte{1, 2, 3, 4}); err == nil {
		t.Error("a write beyond the end went through")
	}
}

// Pieces of memory that overlap, of which the driver locks only the first, are wrapped too.
func TestWrapOverlapping(t *testing.T) {
	r := newRig(t, ptx.Options{})
	page := os.Getpagesize()
	data, err := unix.Mmap(-1, 0, 8*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	numbers := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
	for i := range numbers {
		numbers[i] = float32(i + 1)
	}
	for _, piece := range [][2]int{{0, 3*page + 8}, {3 * page, 5*page + 40}, {2 * page, 8 * page}} {
		b, err := r.WrapBuffer(data[piece[0]:piece[1]])
		x := kept(t, b, err)
		n := (piece[1] - piece[0]) / 4
		out := r.buffer(t, 7*4*n)
		r.mustRun(t, dispatch{kernel: "device_mathematics", buffers: []any{x, out, uint32(n)}, groups: (n + 127) / 128, threads: 128})
		for i := range n {
			if got, want := float64(view[float32](out)[5*n+i]), 1/math.Sqrt(float64(piece[0]/4+i+1)); math.Abs(got-want) > want*1e-6 {
				t.Fatalf("piece %v: number %d gives %v, want %v", piece, i, got, want)
			}
		}
	}
}

// A mapping that nobody may write is copied once.
func TestWrapReadOnly(t *testing.T) {
	r := newRig(t, ptx.Options{})
	path := filepath.Join(t.TempDir(), "file")
	content := make([]byte, 5*os.Getpagesize()+40)
	for i := range content {
		content[i] = byte(i * 31)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	for _, from := range []int{0, os.Getpagesize()} { // overlapping
		before := r.AllocatedBytes()
		b, err := r.WrapBuffer(data[from:])
		t.Logf("%d bytes are copied", r.AllocatedBytes()-before)
		x := kept(t, b, err)
		n := len(data[from:]) / 4
		out := r.buffer(t, 7*4*n)
		r.mustRun(t, dispatch{kernel: "device_mathematics", buffers: []any{x, out, uint32(n)}, groups: (n + 127) / 128, threads: 128})
		for i, v := range view[float32](x) {
			if got, want := view[float32](out)[5*n+i], 1/math.Sqrt(math.Abs(float64(v))); !(math.Abs(float64(got)-want) <= want*1e-6) && !(math.IsNaN(want) || want > 1e38) {
				t.Fatalf("number %d from %d: %v gives %v", i, from, v, got)
			}
		}
	}
}

// A fault names the kernel and loses the device; it happens in a process of its own, which is lost with it.
func TestFault(t *testing.T) {
	if *faultFlag {
		r := newRig(t, ptx.Options{Careful: true})
		err := r.run(t, dispatch{kernel: "device_fault", buffers: []any{r.buffer(t, 64)}, groups: 1, threads: 32})
		fmt.Printf("fault: %v\n", err)
		_, err = r.NewBuffer(64)
		fmt.Printf("after: %v\n", err)
		return
	}
	open(t, ptx.Options{})
	out, err := exec.Command(os.Args[0], "-test.run=^TestFault$", "-ptx.fault", "-ptx.cache="+*cacheFlag).CombinedOutput()
	lines := string(out)
	t.Logf("%s%v", lines, err)
	for _, want := range []string{"fault: ", "kernel device_fault", "after: ", "the device is lost"} {
		if !strings.Contains(lines, want) {
			t.Errorf("a fault does not say %q", want)
		}
	}
}
