package metaltest

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lector/metal"
)

func (r *rig) properties(t *testing.T) {
	p := r.device.Properties()
	if p.Name == "" || p.PageBytes <= 0 || p.PageBytes&(p.PageBytes-1) != 0 {
		t.Errorf("name %q and page of %d bytes", p.Name, p.PageBytes)
	}
	if p.MaxBufferBytes <= 0 || p.WorkingSetBytes <= 0 {
		t.Errorf("buffers of up to %d bytes in a working set of %d", p.MaxBufferBytes, p.WorkingSetBytes)
	}
	if p.MaxThreads < 256 || p.ThreadgroupMemory < 16<<10 || p.SimdWidth != 32 {
		t.Errorf("groups of up to %d threads with %d bytes, simdgroups of %d", p.MaxThreads, p.ThreadgroupMemory, p.SimdWidth)
	}
}

func (r *rig) buffers(t *testing.T) {
	before := r.device.AllocatedBytes()
	for _, size := range []int{1, 4, 63, 4096, 100_000} {
		b, err := r.device.NewBuffer(size)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if got := b.Bytes(); len(got) != size || !bytes.Equal(got, make([]byte, size)) {
			t.Errorf("a buffer of %d bytes has %d or is not zeroed", size, len(got))
		}
		if uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes())))%16 != 0 && size%16 == 0 {
			t.Errorf("a buffer of %d bytes does not begin at a multiple of 16", size)
		}
		if now := r.device.AllocatedBytes(); now < before+int64(size) {
			t.Errorf("%d bytes allocated with a buffer of %d more than %d", now, size, before)
		}
		b.Bytes()[size-1] = 7
		closeAll(t, b, b)
	}
	if now := r.device.AllocatedBytes(); now != before {
		t.Errorf("%d bytes allocated after closing, %d before", now, before)
	}
	for _, size := range []int{0, -1, int(min(r.device.Properties().MaxBufferBytes, 1<<62)) + 1} {
		if b, err := r.device.NewBuffer(size); err == nil {
			closeAll(t, b)
			t.Errorf("a buffer of %d bytes was made", size)
		} else if size > 0 && !errors.Is(err, metal.ErrMemory) {
			t.Errorf("a buffer of %d bytes: %v, want ErrMemory", size, err)
		}
	}
}

// wrap lets the device read and write mapped memory in place.
func (r *rig) wrap(t *testing.T) {
	page := r.device.Properties().PageBytes
	size := 4 * page
	memory, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory))) & uintptr(page-1))
	data := memory[skip : skip+size]
	b, err := r.device.WrapBuffer(data)
	if err != nil {
		t.Fatalf("wrap: %v", err)
	}
	if unsafe.SliceData(b.Bytes()) != unsafe.SliceData(data) || len(b.Bytes()) != size {
		t.Error("the wrapped memory is not the buffer's")
	}
	x := uints(b)
	for i := range x {
		x[i] = uint32(i)
	}
	c, e := begin(t, r.queue(t))
	step(e, r.pipeline(t, "suite_step"), b, [3]uint32{uint32(len(x)), 3, 5})
	finish(t, c, e)
	for i, v := range x {
		if v != uint32(i)*3+5 {
			t.Fatalf("word %d is %d after the step", i, v)
		}
	}
	closeAll(t, b, b)
	if _, err := r.device.WrapBuffer(data[4:]); err == nil {
		t.Error("memory that begins 4 bytes into a page was wrapped")
	}
}

func (r *rig) compileError(t *testing.T) {
	source := metal.Source{Name: "broken.metal", Text: "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float *x [[buffer(0)]]) {\n  x[0] = nothing;\n}\n"}
	l, err := r.device.Compile(source)
	if err == nil {
		closeAll(t, l)
		t.Fatal("a source that names nothing compiled")
	}
	if !errors.Is(err, metal.ErrCompile) || !strings.Contains(err.Error(), "broken.metal") || !strings.Contains(err.Error(), ":4:") {
		t.Errorf("want ErrCompile that names broken.metal and line 4, got: %v", err)
	}
}

// blocks checks that a block is copied when it is set, and how large it may be.
func (r *rig) blocks(t *testing.T) {
	out := r.buffer(t, metal.MaxBlockBytes)
	block := make([]byte, metal.MaxBlockBytes)
	for i := range block {
		block[i] = byte(i * 7)
	}
	want := bytes.Clone(block)
	c, e := begin(t, r.queue(t))
	e.SetPipeline(r.pipeline(t, "suite_block"))
	e.SetBuffer(0, out, 0)
	e.SetBytes(1, block)
	clear(block)
	e.Dispatch(row(metal.MaxBlockBytes/4, 64))
	finish(t, c, e)
	if !bytes.Equal(out.Bytes(), want) {
		t.Error("the kernel saw another block than was set")
	}
	for _, size := range []int{0, metal.MaxBlockBytes + 1} {
		c, e := begin(t, r.queue(t))
		e.SetBytes(1, make([]byte, size))
		e.End()
		if err := c.Commit(); err == nil {
			t.Errorf("a block of %d bytes was taken", size)
		}
	}
}

func closeTwice(t *testing.T, d metal.Device) {
	l, err := d.Compile(Source())
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Pipeline("suite_step", nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, l, l) // the pipeline lives on
	q, err := d.NewQueue("suite")
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.NewBuffer(256)
	if err != nil {
		t.Fatal(err)
	}
	c, e := begin(t, q)
	step(e, p, b, [3]uint32{64, 1, 9})
	e.End()
	e.End()
	c.SignalEvent(v, 1)
	commit(t, c)
	wait(t, c)
	if uints(b)[63] != 9 {
		t.Error("a pipeline did not outlive its library")
	}
	closeAll(t, b, b, v, v, q, q, p, p, d, d)
}
