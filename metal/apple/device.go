//go:build (darwin && arm64) || (linux && (amd64 || arm64))

package apple

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"lector/metal"
)

// device implements metal.Device.
type device struct {
	*objc
	id        id
	props     metal.Properties
	errorKey  id // of an NSError's user info: what became of the encoders
	resident  residency
	allocated atomic.Int64
	closed    atomic.Bool
}

// open loads the libraries and makes the default device.
func open(from images) (metal.Device, error) {
	r, err := loadObjc(from)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", metal.ErrUnavailable, err)
	}
	framework, err := purego.Dlopen(from.metal, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: load Metal: %w", metal.ErrUnavailable, err)
	}
	create, err := purego.Dlsym(framework, "MTLCreateSystemDefaultDevice")
	if err != nil {
		return nil, fmt.Errorf("%w: load Metal: %w", metal.ErrUnavailable, err)
	}
	d := &device{objc: r}
	if key, err := purego.Dlsym(framework, "MTLCommandBufferEncoderInfoErrorKey"); err == nil {
		d.errorKey = *(*id)(pointer(key))
	}
	r.pool(func() { err = d.create(create) })
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *device) create(create uintptr) error {
	v, _, _ := purego.SyscallN(create)
	if d.id = id(v); d.id == 0 {
		return fmt.Errorf("%w: the system has no default Metal device", metal.ErrUnavailable)
	}
	d.props = metal.Properties{
		Name:              d.goString(id(d.send(d.id, d.sel.name))),
		PageBytes:         os.Getpagesize(),
		MaxBufferBytes:    int64(d.send(d.id, d.sel.maxBufferLength)),
		WorkingSetBytes:   int64(d.send(d.id, d.sel.recommendedMaxWorkingSetSize)),
		MaxThreads:        1024, // of every Apple GPU; Metal returns it as a struct
		ThreadgroupMemory: int(d.send(d.id, d.sel.maxThreadgroupMemoryLength)),
		SimdWidth:         32,
	}
	if byte(d.send(d.id, d.sel.hasUnifiedMemory)) == 0 {
		d.release(d.id)
		return fmt.Errorf("%w: %s does not share memory with the host", metal.ErrUnavailable, d.props.Name)
	}
	d.resident.open(d)
	return nil
}

// Properties implements metal.Device.
func (d *device) Properties() metal.Properties { return d.props }

// AllocatedBytes implements metal.Device.
func (d *device) AllocatedBytes() int64 { return d.allocated.Load() }

// Close implements metal.Device.
func (d *device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.pool(func() {
		d.resident.close(d)
		d.release(d.id)
	})
	return nil
}

// residency keeps allocated buffers in memory. All of it is guarded by mu.
type residency struct {
	mu    sync.Mutex
	set   id // 0 where the system has none
	dirty bool
}

func (s *residency) open(d *device) {
	if !d.responds(d.id, d.sel.newResidencySet) {
		return
	}
	descriptor := id(d.send(d.classNamed("MTLResidencySetDescriptor"), d.sel.new))
	defer d.release(descriptor)
	reason := new(id)
	// Without a set buffers still work: Metal then makes them resident for each command buffer.
	s.set = id(d.send2(d.id, d.sel.newResidencySet, uintptr(descriptor), uintptr(unsafe.Pointer(reason))))
}

// change adds a buffer to the set, or takes it out.
func (s *residency) change(d *device, message sel, buffer id) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == 0 {
		return
	}
	d.send1(s.set, message, uintptr(buffer))
	s.dirty = true
}

// settle makes changes take effect, before a command buffer is committed.
func (s *residency) settle(d *device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == 0 || !s.dirty {
		return
	}
	d.send(s.set, d.sel.commit)
	d.send(s.set, d.sel.requestResidency)
	s.dirty = false
}

func (s *residency) close(d *device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set != 0 {
		d.send(s.set, d.sel.endResidency)
		d.release(s.set)
		s.set = 0
	}
}

// buffer implements metal.Buffer.
type buffer struct {
	device   *device
	id       id
	data     []byte
	charged  int64
	resident bool
	closed   atomic.Bool
}

const storageModeShared = 0

// NewBuffer implements metal.Device.
func (d *device) NewBuffer(n int) (metal.Buffer, error) {
	if n <= 0 || int64(n) > d.props.MaxBufferBytes {
		return nil, fmt.Errorf("%w: a buffer of %d bytes, where one can have 1 to %d", metal.ErrMemory, n, d.props.MaxBufferBytes)
	}
	b := &buffer{device: d, charged: int64(d.roundUp(n)), resident: true}
	d.pool(func() {
		if b.id = id(d.send2(d.id, d.sel.newBuffer, uintptr(n), storageModeShared)); b.id != 0 {
			b.data = unsafe.Slice((*byte)(pointer(d.send(b.id, d.sel.contents))), n)
			d.resident.change(d, d.sel.addAllocation, b.id)
		}
	})
	if b.id == 0 {
		return nil, fmt.Errorf("%w: Metal gives no buffer of %d bytes beside the %d allocated", metal.ErrMemory, n, d.AllocatedBytes())
	}
	d.allocated.Add(b.charged)
	return b, nil
}

func (d *device) roundUp(n int) int {
	return (n + d.props.PageBytes - 1) / d.props.PageBytes * d.props.PageBytes
}

// WrapBuffer implements metal.Device. Metal wants whole pages: the rest of the last one, which is mapped in
// any case, is part of its buffer and not of Bytes.
func (d *device) WrapBuffer(data []byte) (metal.Buffer, error) {
	if len(data) == 0 || int64(len(data)) > d.props.MaxBufferBytes {
		return nil, fmt.Errorf("wrap %d bytes: a buffer can have 1 to %d", len(data), d.props.MaxBufferBytes)
	}
	start := unsafe.Pointer(unsafe.SliceData(data))
	if rest := uintptr(start) % uintptr(d.props.PageBytes); rest != 0 {
		return nil, fmt.Errorf("wrap %d bytes: they begin %d bytes after a page of %d", len(data), rest, d.props.PageBytes)
	}
	b := &buffer{device: d, data: data[:len(data):len(data)]}
	d.pool(func() {
		b.id = id(d.sendWrap(d.id, d.sel.newBufferNoCopy, wrapArguments{start, uintptr(d.roundUp(len(data))), storageModeShared}))
	})
	if b.id == 0 {
		return nil, fmt.Errorf("%w: Metal does not wrap %d bytes", metal.ErrMemory, len(data))
	}
	return b, nil
}

// Bytes implements metal.Buffer.
func (b *buffer) Bytes() []byte { return b.data }

// Close implements metal.Buffer.
func (b *buffer) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	d := b.device
	d.pool(func() {
		if b.resident {
			d.resident.change(d, d.sel.removeAllocation, b.id)
		}
		d.release(b.id)
	})
	d.allocated.Add(-b.charged)
	b.data = nil
	return nil
}

// library implements metal.Library.
type library struct {
	device  *device
	id      id
	name    string
	kernels []string
	closed  atomic.Bool
}

// Compile implements metal.Device.
func (d *device) Compile(source metal.Source) (metal.Library, error) {
	l := &library{device: d, name: source.Name}
	var err error
	d.pool(func() {
		options := id(d.send(d.classNamed("MTLCompileOptions"), d.sel.new))
		defer d.release(options)
		d.send1(options, d.sel.setLanguageVersion, languageVersion)
		fast := uintptr(0)
		if source.FastMath {
			fast = 1
		}
		d.send1(options, d.sel.setFastMathEnabled, fast)
		reason := new(id)
		l.id = id(d.send3(d.id, d.sel.newLibrary, uintptr(d.nsString(source.Text)), uintptr(options), uintptr(unsafe.Pointer(reason))))
		if l.id == 0 {
			err = d.nsError(*reason)
			return
		}
		l.kernels = d.goStrings(id(d.send(l.id, d.sel.functionNames)))
	})
	if err != nil {
		// Metal calls every source program_source.
		text := strings.ReplaceAll(err.Error(), "program_source:", source.Name+":")
		return nil, fmt.Errorf("%w: %s: %s", metal.ErrCompile, source.Name, text)
	}
	return l, nil
}

// goStrings copies and sorts an NSArray of NSStrings.
func (r *objc) goStrings(array id) []string {
	all := make([]string, r.send(array, r.sel.count))
	for i := range all {
		all[i] = r.goString(id(r.send1(array, r.sel.objectAtIdx, uintptr(i))))
	}
	slices.Sort(all)
	return all
}

// Kernels implements metal.Library.
func (l *library) Kernels() []string { return slices.Clone(l.kernels) }

// Close implements metal.Library.
func (l *library) Close() error {
	if !l.closed.Swap(true) {
		l.device.pool(func() { l.device.release(l.id) })
	}
	return nil
}

// pipeline implements metal.Pipeline.
type pipeline struct {
	device      *device
	id          id
	kernel      string
	maxThreads  int
	threadgroup int // bytes that the kernel declares
	closed      atomic.Bool
}

// Pipeline implements metal.Library.
func (l *library) Pipeline(kernel string, constants []metal.Constant) (metal.Pipeline, error) {
	if !slices.Contains(l.kernels, kernel) {
		return nil, fmt.Errorf("%w: %s has no kernel %q, only %s", metal.ErrNoKernel, l.name, kernel, strings.Join(l.kernels, ", "))
	}
	d, p := l.device, &pipeline{device: l.device, kernel: kernel}
	var err error
	d.pool(func() {
		function, failure := l.function(kernel, constants)
		if failure != nil {
			err = failure
			return
		}
		defer d.release(function)
		reason := new(id)
		if p.id = id(d.send2(d.id, d.sel.newPipeline, uintptr(function), uintptr(unsafe.Pointer(reason)))); p.id == 0 {
			err = d.nsError(*reason)
			return
		}
		p.maxThreads = int(d.send(p.id, d.sel.maxTotalThreads))
		p.threadgroup = int(d.send(p.id, d.sel.staticThreadgroupSize))
		if width := d.send(p.id, d.sel.threadExecutionWidth); width != uintptr(d.props.SimdWidth) {
			d.release(p.id)
			err = fmt.Errorf("its simdgroups have %d threads, and kernels count on %d", width, d.props.SimdWidth)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("pipeline of %s: %w", kernel, err)
	}
	return p, nil
}

// function makes an owned function.
func (l *library) function(kernel string, constants []metal.Constant) (id, error) {
	d := l.device
	if len(constants) == 0 {
		if f := id(d.send1(l.id, d.sel.newFunction, uintptr(d.nsString(kernel)))); f != 0 {
			return f, nil
		}
		return 0, errors.New("no function without function constants")
	}
	values := id(d.send(d.classNamed("MTLFunctionConstantValues"), d.sel.new))
	defer d.release(values)
	for _, c := range constants {
		bits, typ, err := constantBits(c)
		if err != nil {
			return 0, err
		}
		held := &bits
		d.send3(values, d.sel.setConstantValue, uintptr(unsafe.Pointer(held)), typ, uintptr(c.Index))
	}
	reason := new(id)
	f := id(d.send3(l.id, d.sel.newFunctionConstants, uintptr(d.nsString(kernel)), uintptr(values), uintptr(unsafe.Pointer(reason))))
	if f == 0 {
		return 0, d.nsError(*reason)
	}
	return f, nil
}

// Kernel implements metal.Pipeline.
func (p *pipeline) Kernel() string { return p.kernel }

// MaxThreads implements metal.Pipeline.
func (p *pipeline) MaxThreads() int { return p.maxThreads }

// Close implements metal.Pipeline.
func (p *pipeline) Close() error {
	if !p.closed.Swap(true) {
		p.device.pool(func() { p.device.release(p.id) })
	}
	return nil
}
