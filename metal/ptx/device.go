//go:build linux && (amd64 || arm64)

package ptx

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"lector/metal"
)

// The least that PTX of ours needs: PTX 8.3, and the chip that it is made for.
const (
	needVersion    = 12030
	needCapability = 90
)

// device implements metal.Device and metal.LocalMemory.
type device struct {
	driver     *driver
	options    Options
	number     int32
	context    uintptr
	props      metal.Properties
	translator *translator
	private    string // a folder to remove
	allocated  atomic.Int64
	lost       atomic.Pointer[error] // the first error after which nothing works
	marks      pool                  // events without times
	clocks     pool                  // events with times
	chunks     chunks
	closed     sync.Once
}

// Open opens a GPU. metal.ErrUnavailable says what is missing: the driver, a GPU, or a newer one of either.
func Open(o Options) (metal.Device, error) {
	d := &device{options: o}
	var err error
	if d.driver, err = loadDriver(); err != nil {
		return nil, err
	}
	if err := d.find(); err != nil {
		return nil, err
	}
	if err := d.driver.check("make a context", d.driver.contextRetain(&d.context, d.number)); err != nil {
		return nil, fmt.Errorf("open GPU %d: %w", o.Ordinal, err)
	}
	d.marks = pool{device: d, flags: eventBlocking | eventUntimed}
	d.clocks = pool{device: d, flags: eventBlocking}
	d.chunks.device = d
	if err := d.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open GPU %d: %w", o.Ordinal, err), d.Close())
	}
	return d, nil
}

// find looks for the GPU and says what keeps it from being used.
func (d *device) find() error {
	var version, count, major, minor int32
	d.driver.version(&version)
	if version < needVersion {
		return fmt.Errorf("%w: the NVIDIA driver speaks CUDA %d.%d, and %d.%d is needed: install a newer driver",
			metal.ErrUnavailable, version/1000, version%1000/10, needVersion/1000, needVersion%1000/10)
	}
	if s := d.driver.deviceCount(&count); s != statusOK || int(count) <= d.options.Ordinal || d.options.Ordinal < 0 {
		return fmt.Errorf("%w: GPU %d of the %d that the NVIDIA driver has", metal.ErrUnavailable, d.options.Ordinal, count)
	}
	if err := d.driver.check("get GPU", d.driver.device(&d.number, int32(d.options.Ordinal))); err != nil {
		return err
	}
	d.driver.deviceAttribute(&major, attributeCap, d.number)
	d.driver.deviceAttribute(&minor, attributeCap+1, d.number)
	if have := 10*major + minor; have < needCapability {
		return fmt.Errorf("%w: GPU %d has compute capability %d.%d, and %d.%d is needed",
			metal.ErrUnavailable, d.options.Ordinal, major, minor, needCapability/10, needCapability%10)
	}
	return nil
}

// prepare reads the properties and opens the folder of translations.
func (d *device) prepare() error {
	var name [256]byte
	var threads, shared int32
	var free, total uint64
	err := d.do(func() error {
		return errors.Join(
			d.driver.check("read its name", d.driver.deviceName(&name[0], int32(len(name)), d.number)),
			d.driver.check("read its limits", d.driver.deviceAttribute(&threads, attributeThreads, d.number)),
			d.driver.check("read its limits", d.driver.deviceAttribute(&shared, attributeShared, d.number)),
			d.driver.check("read its memory", d.driver.memoryInfo(&free, &total)))
	})
	if err != nil {
		return err
	}
	text, _, _ := bytes.Cut(name[:], []byte{0})
	d.props = metal.Properties{
		Name: string(text), PageBytes: os.Getpagesize(), MaxBufferBytes: int64(total), WorkingSetBytes: int64(free),
		MaxThreads: int(threads), ThreadgroupMemory: int(shared), SimdWidth: 32,
	}
	folder := d.options.Cache
	if folder == "" {
		if folder, err = os.MkdirTemp("", "lector-ptx-"); err != nil {
			return err
		}
		d.private = folder
	}
	d.translator, err = newTranslator(d.options.Compiler, folder)
	return err
}

// do calls f on an OS thread that holds the context.
func (d *device) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if p := d.lost.Load(); p != nil {
		return *p
	}
	if err := d.driver.check("take the context", d.driver.contextSet(d.context)); err != nil {
		return d.noted(err)
	}
	return d.noted(f())
}

// noted remembers an error after which nothing works.
func (d *device) noted(err error) error {
	if errors.Is(err, ErrLost) {
		d.lost.CompareAndSwap(nil, &err)
	}
	return err
}

// Properties implements metal.Device.
func (d *device) Properties() metal.Properties { return d.props }

// AllocatedBytes implements metal.Device.
func (d *device) AllocatedBytes() int64 { return d.allocated.Load() }

// Close implements metal.Device.
func (d *device) Close() error {
	var err error
	d.closed.Do(func() {
		err = errors.Join(d.chunks.close(), d.marks.close(), d.clocks.close())
		err = errors.Join(err, d.driver.check("release the context", d.driver.contextRelease(d.number)))
		if d.lost.Load() != nil {
			err = nil // what a lost device held went with it
		}
		if d.private != "" {
			err = errors.Join(err, os.RemoveAll(d.private))
		}
	})
	return err
}

// pool keeps events of the driver for use again.
type pool struct {
	device *device
	flags  uint32
	mu     sync.Mutex
	free   []uintptr
}

// take is an event. The caller's thread holds the context.
func (p *pool) take() (uintptr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		return e, nil
	}
	var e uintptr
	return e, p.device.driver.check("make an event", p.device.driver.eventCreate(&e, p.flags))
}

func (p *pool) put(e uintptr) {
	if e == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, e)
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.device.do(func() error {
		var errs []error
		for _, e := range p.free {
			errs = append(errs, p.device.driver.check("free an event", p.device.driver.eventDestroy(e)))
		}
		p.free = nil
		return errors.Join(errs...)
	})
}
