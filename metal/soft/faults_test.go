package soft_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"lector/metal"
	"lector/metal/soft"
)

//go:embed testdata/faults.metal
var faults string

// marked is the place of a marked line, as errors name it.
func marked(t *testing.T, mark string) string {
	t.Helper()
	for i, line := range strings.Split(faults, "\n") {
		if strings.HasSuffix(line, "// MARK "+mark) {
			return fmt.Sprintf("faults.metal:%d", i+1)
		}
	}
	t.Fatalf("no line is marked %s", mark)
	return ""
}

// bench is a device with the faulty kernels and a queue.
type bench struct {
	device  metal.Device
	library metal.Library
	queue   metal.Queue
}

func newBench(t *testing.T, o soft.Options) *bench {
	t.Helper()
	b := &bench{device: open(t, o)}
	var err error
	if b.library, err = b.device.Compile(metal.Source{Name: "faults.metal", Text: faults}); err != nil {
		t.Fatal(err)
	}
	if b.queue, err = b.device.NewQueue("bench"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.queue.Close(), b.library.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) buffer(t *testing.T, size int) metal.Buffer {
	t.Helper()
	x, err := b.device.NewBuffer(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

// run runs one kernel on buffers bound in order, and returns what Commit or Wait says.
func (b *bench) run(t *testing.T, kernel string, groups, threads int, buffers ...metal.Buffer) error {
	t.Helper()
	p, err := b.library.Pipeline(kernel, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := b.queue.NewCommandBuffer("faulty commands")
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Encoder("faulty encoder")
	if err != nil {
		t.Fatal(err)
	}
	e.SetPipeline(p)
	for i, x := range buffers {
		e.SetBuffer(i, x, 0)
	}
	e.Dispatch(metal.Size{X: groups, Y: 1, Z: 1}, metal.Size{X: threads, Y: 1, Z: 1})
	e.End()
	if err := c.Commit(); err != nil {
		return err
	}
	return c.Wait(context.Background())
}

func f32(b metal.Buffer) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b.Bytes()))), len(b.Bytes())/4)
}

func expect(t *testing.T, err error, kernel string, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: nothing was found", kernel)
		return
	}
	for _, p := range append(parts, "kernel "+kernel) {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: the error does not say %q: %v", kernel, p, err)
		}
	}
}

// What every mode finds.
func TestFaults(t *testing.T) {
	b := newBench(t, soft.Options{})
	for _, c := range []struct {
		kernel  string
		threads int
		want    []string
	}{
		{"fault_read_beyond", 64, []string{"out of bounds", "thread 0 of threadgroup (0,0,0)", "offset 256 of buffer 0 (256 bytes)", marked(t, "read_beyond")}},
		{"fault_write_beyond", 64, []string{"out of bounds", "thread 63", "offset 256 of buffer 0", marked(t, "write_beyond"), `encoder "faulty encoder"`}},
		{"fault_array_beyond", 32, []string{"out of bounds", "thread 31", "offset 128 of threadgroup array shared (128 bytes)", marked(t, "array_beyond")}},
		{"fault_some_at_barrier", 64, []string{"threadgroup_barrier", "40 of 64", marked(t, "some_at_barrier")}},
		{"fault_two_barriers", 64, []string{"different barriers", marked(t, "two_barriers")}},
		{"fault_some_at_sum", 32, []string{"simdgroup function", "10 of 32", marked(t, "some_at_sum")}},
		{"fault_two_sums", 32, []string{"divergent", marked(t, "two_sums")}},
		{"fault_some_multiply", 32, []string{"simdgroup matrices need all 32 lanes", marked(t, "some_multiply")}},
		{"fault_few_lanes", 16, []string{"simdgroup matrices need all 32 lanes"}},
		{"fault_too_much", 64, []string{"33600 bytes", "32768", "large"}},
		{"fault_divide", 32, []string{"divides an integer by zero", "thread 0", marked(t, "divide")}},
		{"fault_constant", 32, []string{"function constant 3 (wanted)"}},
	} {
		expect(t, b.run(t, c.kernel, 1, c.threads, b.buffer(t, 256)), c.kernel, c.want...)
	}
	expect(t, b.run(t, "fault_short", 1, 32, b.buffer(t, 256), b.buffer(t, 8)), "fault_short", "buffer 1 holds 8 bytes", "has 12")
	expect(t, b.run(t, "fault_short", 1, 32, b.buffer(t, 256)), "fault_short", "nothing is bound at buffer 1 (w)")
	// The device goes on after faults.
	if err := b.run(t, "sound", 1, 64, b.buffer(t, 128), b.buffer(t, 128)); err != nil {
		t.Error(err)
	}
}

// Lenient devices let the threads that came go on.
func TestLenient(t *testing.T) {
	b := newBench(t, soft.Options{Lenient: true})
	for _, k := range []string{"fault_some_at_barrier", "fault_two_barriers", "fault_some_at_sum", "fault_two_sums"} {
		if err := b.run(t, k, 1, 64, b.buffer(t, 256)); err != nil {
			t.Error(err)
		}
	}
}

func TestRaces(t *testing.T) {
	b := newBench(t, soft.Options{Mode: soft.Race, Workers: 1})
	for _, c := range []struct {
		kernel          string
		groups, threads int
		want            []string
	}{
		{"fault_no_barrier", 1, 64, []string{"race on threadgroup array shared", "thread 31 read it, thread 32", "no barrier between", marked(t, "no_barrier")}},
		{"fault_no_simd_barrier", 1, 32, []string{"race on threadgroup array shared", "no barrier between", marked(t, "no_simd_barrier")}},
		{"fault_wrong_simd_fence", 1, 32, []string{"race on threadgroup array shared", "no barrier between", marked(t, "wrong_simd_fence")}},
		{"fault_wrong_fence", 1, 64, []string{"race on buffer 0", "no barrier between", marked(t, "wrong_fence")}},
		{"fault_groups", 2, 32, []string{"race on buffer 0", "nothing orders threadgroups", marked(t, "groups")}},
		{"fault_read_beyond", 1, 128, []string{"out of bounds", "reads 4 bytes at offset 512 of buffer 0 (512 bytes)", marked(t, "read_beyond")}},
		{"fault_array_beyond", 1, 32, []string{"out of bounds", "writes 4 bytes at offset 128 of threadgroup array shared", marked(t, "array_beyond")}},
	} {
		expect(t, b.run(t, c.kernel, c.groups, c.threads, b.buffer(t, 512)), c.kernel, c.want...)
	}
	for range 2 { // the second run meets the shadow of the first
		if err := b.run(t, "sound", 1, 64, b.buffer(t, 128), b.buffer(t, 128)); err != nil {
			t.Error(err)
		}
	}
}

func TestUndefined(t *testing.T) {
	b := newBench(t, soft.Options{Mode: soft.Undefined})
	for kernel, want := range map[string][]string{
		"undefined_shift":      {"undefined behaviour: a shift", "thread 31 of threadgroup (0,0,0)", marked(t, "shift")},
		"undefined_alignment":  {"misaligned", marked(t, "alignment")},
		"undefined_index":      {"index out of an array's bounds", "thread 4", marked(t, "index")},
		"undefined_conversion": {"integer type cannot hold", marked(t, "conversion")},
		"fault_divide":         {"division", marked(t, "divide")},
	} {
		expect(t, b.run(t, kernel, 1, 32, b.buffer(t, 1024), b.buffer(t, 1024)), kernel, want...)
	}
	if err := b.run(t, "sound", 1, 64, b.buffer(t, 128), b.buffer(t, 128)); err != nil {
		t.Error(err)
	}
}

// What only a mode finds goes through without it: TestRaces, TestUndefined and TestDroppedEventWait hold the detectors
// to their work, and would fail without them.
func TestFaultsWithoutTheirDetector(t *testing.T) {
	b := newBench(t, soft.Options{Workers: 1})
	for _, c := range []struct {
		kernel          string
		groups, threads int
	}{
		{"fault_no_barrier", 1, 64}, {"fault_no_simd_barrier", 1, 32}, {"fault_wrong_simd_fence", 1, 32}, {"fault_wrong_fence", 1, 64}, {"fault_groups", 2, 32},
		{"undefined_shift", 1, 32}, {"undefined_conversion", 1, 32},
	} {
		if err := b.run(t, c.kernel, c.groups, c.threads, b.buffer(t, 1024), b.buffer(t, 1024)); err != nil {
			t.Errorf("%s: a plain device finds %v", c.kernel, err)
		}
	}
	p := newPair(t, b.device)
	w := p.commands(t, true, nothing, nothing)
	if err := errors.Join(w.Wait(context.Background()), p.commands(t, false, nothing, nothing).Wait(context.Background())); err != nil {
		t.Errorf("a dropped wait: a plain device finds %v", err)
	}
}

// Other schedules change what missing barriers compute, and memory that nobody wrote shows as NaN.
func TestSchedules(t *testing.T) {
	for _, k := range []struct {
		kernel  string
		threads int
	}{{"fault_no_barrier", 64}, {"fault_no_simd_barrier", 32}} {
		seen := map[string]bool{}
		for _, seed := range []uint64{0, 1, 2, 3, 77} {
			b := newBench(t, soft.Options{Seed: seed})
			var first string
			for range 2 {
				x := b.buffer(t, 256)
				for i := range f32(x) {
					f32(x)[i] = float32(i)
				}
				if err := b.run(t, k.kernel, 1, k.threads, x); err != nil {
					t.Fatal(err)
				}
				if got := string(x.Bytes()); first == "" {
					first = got
				} else if got != first {
					t.Errorf("%s: seed %d does not repeat", k.kernel, seed)
				}
			}
			seen[first] = true
		}
		if len(seen) < 2 {
			t.Errorf("%s: five schedules give one result", k.kernel)
		}
	}
	b := newBench(t, soft.Options{})
	x := b.buffer(t, 256)
	if err := b.run(t, "fault_unwritten", 1, 64, x); err != nil {
		t.Fatal(err)
	}
	if v := f32(x)[40]; !math.IsNaN(float64(v)) {
		t.Errorf("threadgroup memory that nobody wrote gave %v", v)
	}
}
