// Package metaltest has the suite that holds a metal.Device to its contract.
//
// Every device passes Run: buffers and wrapped memory, sources that do not compile, function constants, the
// geometry of dispatches, the order of work within and across queues, events, limits, times and closing.
// Nothing here knows which device it tests. The suite's kernels keep to the dialect that all devices share;
// its sizes are small, so that a device without hardware passes it in seconds.
//
// Run may be called from several tests at once with devices of their own. Start reading at Run.
package metaltest

import (
	"context"
	_ "embed"
	"encoding/binary"
	"math"
	"testing"
	"time"
	"unsafe"

	"lector/metal"
)

//go:embed kernels.metal
var kernels string

// Source is the suite's kernels, for tests of what goes on inside of a device.
func Source() metal.Source { return metal.Source{Name: "kernels.metal", Text: kernels} }

// patience is how long the suite waits for what must come.
const patience = 30 * time.Second

// Run holds the devices that open makes to the contract.
func Run(t *testing.T, open func(t *testing.T) metal.Device) {
	r := newRig(t, open(t))
	t.Run("Properties", r.properties)
	t.Run("Buffers", r.buffers)
	t.Run("Wrap", r.wrap)
	t.Run("CompileError", r.compileError)
	t.Run("Kernels", r.kernelNames)
	t.Run("Constants", r.constants)
	t.Run("Geometry", r.geometry)
	t.Run("Collectives", r.collectives)
	t.Run("ThreadgroupMemory", r.threadgroupMemory)
	t.Run("Bindings", r.bindings)
	t.Run("Blocks", r.blocks)
	t.Run("OrderInEncoder", r.orderInEncoder)
	t.Run("OrderInQueue", r.orderInQueue)
	t.Run("OrderAcrossQueues", r.orderAcrossQueues)
	t.Run("ManyQueues", r.manyQueues)
	t.Run("Events", r.events)
	t.Run("HostSignal", r.hostSignal)
	t.Run("CancelledWait", r.cancelledWait)
	t.Run("Limits", r.limits)
	t.Run("Misuse", r.misuse)
	t.Run("DeviceTime", r.deviceTime)
	t.Run("Close", func(t *testing.T) { closeTwice(t, open(t)) })
}

// rig is a device with the suite's library.
type rig struct {
	device  metal.Device
	library metal.Library
}

func newRig(t *testing.T, d metal.Device) *rig {
	t.Helper()
	l, err := d.Compile(Source())
	if err != nil {
		t.Fatalf("compile the suite's kernels: %v", err)
	}
	t.Cleanup(func() { closeAll(t, l, d) })
	return &rig{device: d, library: l}
}

type closer interface{ Close() error }

func closeAll(t *testing.T, things ...closer) {
	t.Helper()
	for _, c := range things {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	}
}

// buffer makes a buffer that lives as long as the test.
func (r *rig) buffer(t *testing.T, size int) metal.Buffer {
	t.Helper()
	b, err := r.device.NewBuffer(size)
	if err != nil {
		t.Fatalf("new buffer of %d bytes: %v", size, err)
	}
	t.Cleanup(func() { closeAll(t, b) })
	return b
}

func (r *rig) pipeline(t *testing.T, kernel string, constants ...metal.Constant) metal.Pipeline {
	t.Helper()
	p, err := r.library.Pipeline(kernel, constants)
	if err != nil {
		t.Fatalf("pipeline of %s: %v", kernel, err)
	}
	t.Cleanup(func() { closeAll(t, p) })
	return p
}

func (r *rig) queue(t *testing.T) metal.Queue {
	t.Helper()
	q, err := r.device.NewQueue("suite")
	if err != nil {
		t.Fatalf("new queue: %v", err)
	}
	t.Cleanup(func() { closeAll(t, q) })
	return q
}

func (r *rig) event(t *testing.T) metal.SharedEvent {
	t.Helper()
	e, err := r.device.NewEvent()
	if err != nil {
		t.Fatalf("new event: %v", err)
	}
	t.Cleanup(func() { closeAll(t, e) })
	return e
}

// begin starts a command buffer with one encoder.
func begin(t *testing.T, q metal.Queue) (metal.CommandBuffer, metal.Encoder) {
	t.Helper()
	c := commands(t, q)
	return c, encoder(t, c)
}

func commands(t *testing.T, q metal.Queue) metal.CommandBuffer {
	t.Helper()
	c, err := q.NewCommandBuffer("suite commands")
	if err != nil {
		t.Fatalf("new command buffer: %v", err)
	}
	return c
}

func encoder(t *testing.T, c metal.CommandBuffer) metal.Encoder {
	t.Helper()
	e, err := c.Encoder("suite encoder")
	if err != nil {
		t.Fatalf("new encoder: %v", err)
	}
	return e
}

func commit(t *testing.T, c metal.CommandBuffer) {
	t.Helper()
	if err := c.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func wait(t *testing.T, c metal.CommandBuffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		t.Fatalf("wait: %v", err)
	}
}

// finish ends, commits and waits.
func finish(t *testing.T, c metal.CommandBuffer, e metal.Encoder) {
	t.Helper()
	e.End()
	commit(t, c)
	wait(t, c)
}

// row is n threads in groups of size.
func row(n, size int) (groups, threads metal.Size) {
	return metal.Size{X: (n + size - 1) / size, Y: 1, Z: 1}, metal.Size{X: size, Y: 1, Z: 1}
}

// words packs numbers as little-endian 32-bit words.
func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// uints is a buffer as 32-bit words, floats as numbers.
func uints(b metal.Buffer) []uint32 {
	data := b.Bytes()
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

func floats(b metal.Buffer) []float32 {
	data := b.Bytes()
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

// halfBits is a small whole number as the bits of a half.
func halfBits(n int) uint16 {
	bits := math.Float32bits(float32(n))
	if n == 0 {
		return 0
	}
	return uint16(bits>>16&0x8000 | (bits>>23&0xff-112)<<10&0x7c00 | bits>>13&0x3ff)
}

// step encodes suite_step: x = factor x + term over n words.
func step(e metal.Encoder, p metal.Pipeline, x metal.Buffer, numbers [3]uint32) {
	e.SetPipeline(p)
	e.SetBuffer(0, x, 0)
	e.SetBytes(1, words(numbers[:]...))
	e.Dispatch(row(int(numbers[0]), 32))
}
