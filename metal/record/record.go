// Package record is a metal.Device that executes nothing and counts everything: command buffers, waits of the
// host, dispatches by kernel, bytes. It answers how much work a plan gives a device, on any machine.
//
// What it promises:
//
//  1. It takes any kernel by name, without a compiler, and every command buffer is done as soon as it is
//     committed, with its events raised. Waits of the device for events never hold.
//  2. Buffers are real memory that costs nothing until it is touched, so that sizes beyond the machine's work.
//  3. Misuse that other devices refuse in Commit is refused here.
//  4. Options.Dispatch sees each dispatch when it is committed and may write its buffers: so a caller plays
//     what its host code reads back.
//
// It refuses to compute, to find races and to know a time: DeviceTime is 0. Any goroutine may use it, as
// metal.Device says. Start reading at New, then Counts.
package record

import (
	"fmt"
	"maps"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"lector/metal"
)

// Options says what the device claims to be.
type Options struct {
	// Properties are what Device.Properties returns; zero fields stand for those of a large Apple GPU.
	Properties metal.Properties
	// Dispatch is called for each dispatch, in the order of Commit, before Commit returns. It may be nil.
	Dispatch func(d Dispatch)
}

// Dispatch is one dispatch as it was encoded.
type Dispatch struct {
	Commands string // the labels of the command buffer and the encoder
	Encoder  string
	Kernel   string
	Groups   metal.Size
	Threads  metal.Size
	Bindings map[int]Binding // by the kernel's buffer index
}

// Binding is what a buffer index is bound to.
type Binding struct {
	Buffer metal.Buffer // nil where Block is bound
	Offset int
	Block  []byte
}

// Bytes is the bound memory, from the offset to the end.
func (b Binding) Bytes() []byte {
	if b.Buffer == nil {
		return b.Block
	}
	return b.Buffer.Bytes()[b.Offset:]
}

// Counts is what the device has been asked for since New or Reset.
type Counts struct {
	CommandBuffers int
	Encoders       int
	Dispatches     int
	HostWaits      int // CommandBuffer.Wait for what no wait before has seen done
	StatusReads    int // CommandBuffer.Wait for what an earlier wait has seen done
	HostEventWaits int // SharedEvent.Wait: for the device, or for another thread of the host
	EventWaits     int // by command buffers
	EventSignals   int // by command buffers
	HostSignals    int
	BlockBytes     int64 // of SetBytes
	Libraries      int
	Pipelines      int
	Kernels        map[string]Work // by name
	Buffers        int             // made and not closed; this and the bytes below are not reset
	BufferBytes    int64           // of those, rounded up to pages
	PeakBytes      int64           // the most at any time
	WrappedBytes   int64
}

// Work is what one kernel was asked for.
type Work struct {
	Dispatches int
	Groups     int64
	Threads    int64
}

// Device is the recording device.
type Device struct {
	options Options
	page    int

	mu     sync.Mutex
	counts Counts
}

// New makes a recording device.
func New(o Options) *Device {
	p := &o.Properties
	if p.Name == "" {
		p.Name = "recorder"
	}
	setInt := func(v *int, otherwise int) {
		if *v == 0 {
			*v = otherwise
		}
	}
	setInt(&p.PageBytes, 16<<10)
	setInt(&p.MaxThreads, 1024)
	setInt(&p.ThreadgroupMemory, 32<<10)
	setInt(&p.SimdWidth, 32)
	if p.MaxBufferBytes == 0 {
		p.MaxBufferBytes = math.MaxInt64 / 2
	}
	if p.WorkingSetBytes == 0 {
		p.WorkingSetBytes = 96 << 30
	}
	d := &Device{options: o, page: max(p.PageBytes, os.Getpagesize())}
	d.counts.Kernels = map[string]Work{}
	return d
}

// Counts is a copy of what was counted.
func (d *Device) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts
	c.Kernels = maps.Clone(c.Kernels)
	return c
}

// Reset sets the counts of work to zero. What is allocated stays counted, and its peak begins anew.
func (d *Device) Reset() {
	d.count(func(c *Counts) {
		*c = Counts{Kernels: map[string]Work{}, Buffers: c.Buffers, BufferBytes: c.BufferBytes, PeakBytes: c.BufferBytes, WrappedBytes: c.WrappedBytes}
	})
}

func (d *Device) count(f func(c *Counts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.counts)
}

// Properties implements metal.Device.
func (d *Device) Properties() metal.Properties { return d.options.Properties }

// AllocatedBytes implements metal.Device.
func (d *Device) AllocatedBytes() int64 { return d.Counts().BufferBytes }

// Close implements metal.Device.
func (d *Device) Close() error { return nil }

// buffer implements metal.Buffer.
type buffer struct {
	device  *Device
	data    []byte
	mapping []byte // nil of wrapped memory
	closed  atomic.Bool
}

// NewBuffer implements metal.Device.
func (d *Device) NewBuffer(size int) (metal.Buffer, error) {
	if size <= 0 || int64(size) > d.options.Properties.MaxBufferBytes {
		return nil, fmt.Errorf("%w: a buffer of %d bytes, where one can have 1 to %d", metal.ErrMemory, size, d.options.Properties.MaxBufferBytes)
	}
	rounded := (size + d.page - 1) / d.page * d.page
	m, err := unix.Mmap(-1, 0, rounded, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%w: map %d bytes: %w", metal.ErrMemory, rounded, err)
	}
	d.count(func(c *Counts) {
		c.Buffers++
		c.BufferBytes += int64(rounded)
		c.PeakBytes = max(c.PeakBytes, c.BufferBytes)
	})
	return &buffer{device: d, data: m[:size:size], mapping: m}, nil
}

// WrapBuffer implements metal.Device.
func (d *Device) WrapBuffer(data []byte) (metal.Buffer, error) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if len(data) == 0 || at%uintptr(os.Getpagesize()) != 0 {
		return nil, fmt.Errorf("wrap %d bytes: they are empty or do not begin at a page", len(data))
	}
	d.count(func(c *Counts) {
		c.Buffers++
		c.WrappedBytes += int64(len(data))
	})
	return &buffer{device: d, data: data[:len(data):len(data)]}, nil
}

// Bytes implements metal.Buffer.
func (b *buffer) Bytes() []byte { return b.data }

// Close implements metal.Buffer.
func (b *buffer) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	b.device.count(func(c *Counts) {
		c.Buffers--
		if b.mapping == nil {
			c.WrappedBytes -= int64(len(b.data))
		} else {
			c.BufferBytes -= int64(len(b.mapping))
		}
	})
	b.data = nil
	if b.mapping == nil {
		return nil
	}
	if err := unix.Munmap(b.mapping); err != nil {
		return fmt.Errorf("unmap a buffer: %w", err)
	}
	return nil
}

// library implements metal.Library and has every kernel that is asked for.
type library struct{ device *Device }

// Compile implements metal.Device.
func (d *Device) Compile(metal.Source) (metal.Library, error) {
	d.count(func(c *Counts) { c.Libraries++ })
	return library{d}, nil
}

// Kernels implements metal.Library: it knows none by name.
func (library) Kernels() []string { return nil }

// Close implements metal.Library.
func (library) Close() error { return nil }

// Pipeline implements metal.Library.
func (l library) Pipeline(kernel string, _ []metal.Constant) (metal.Pipeline, error) {
	l.device.count(func(c *Counts) { c.Pipelines++ })
	return &pipeline{device: l.device, kernel: kernel}, nil
}

// pipeline implements metal.Pipeline.
type pipeline struct {
	device *Device
	kernel string
}

// Kernel implements metal.Pipeline.
func (p *pipeline) Kernel() string { return p.kernel }

// MaxThreads implements metal.Pipeline.
func (p *pipeline) MaxThreads() int { return p.device.options.Properties.MaxThreads }

// Close implements metal.Pipeline.
func (p *pipeline) Close() error { return nil }
