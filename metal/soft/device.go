//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"lector/metal"
)

// device implements metal.Device.
type device struct {
	options   Options
	props     metal.Properties
	compiler  *compiler
	private   string // a folder to remove
	runtime   string // the runtime's object
	run       uintptr
	cellBytes int
	allocated atomic.Int64
	clocks    clocks
	closed    sync.Once
}

// Open makes a device. It compiles the runtime where the cache lacks it, which takes a second.
// metal.ErrUnavailable says what is missing.
func Open(o Options) (metal.Device, error) {
	d := &device{options: o}
	if d.options.Workers <= 0 {
		d.options.Workers = runtime.GOMAXPROCS(0)
	}
	folder := o.Cache
	if folder == "" {
		if _, err := findCompiler(o.Compiler); err != nil {
			return nil, err
		}
		made, err := os.MkdirTemp("", "lector-soft-")
		if err != nil {
			return nil, fmt.Errorf("open the soft device: %w", err)
		}
		folder, d.private = made, made
	}
	if err := d.load(folder); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// load compiles and loads the runtime. It is never unloaded: its signal handlers stay.
func (d *device) load(folder string) error {
	var err error
	if d.compiler, err = newCompiler(d.options, folder); err != nil {
		return err
	}
	if d.runtime, err = d.compiler.runtime(); err != nil {
		return err
	}
	handle, err := loadOnce(d.runtime)
	if err != nil {
		return fmt.Errorf("load the runtime of the soft device: %w", err)
	}
	var cell, launch, report uint32
	for name, value := range map[string]*uint32{"msl_cell_bytes": &cell, "msl_launch_bytes": &launch, "msl_report_bytes": &report} {
		f, err := purego.Dlsym(handle, name)
		if err != nil {
			return fmt.Errorf("load the runtime of the soft device: %w", err)
		}
		r, _, _ := purego.SyscallN(f)
		*value = uint32(r)
	}
	if launch != uint32(unsafe.Sizeof(cLaunch{})) || report != uint32(unsafe.Sizeof(cReport{})) {
		return fmt.Errorf("load the runtime of the soft device: its structs have %d and %d bytes, ours %d and %d", launch, report, unsafe.Sizeof(cLaunch{}), unsafe.Sizeof(cReport{}))
	}
	if d.run, err = purego.Dlsym(handle, "msl_run"); err != nil {
		return fmt.Errorf("load the runtime of the soft device: %w", err)
	}
	d.cellBytes = int(cell)
	d.props, err = properties(d.options)
	return err
}

// loadOnce loads a shared object whose name says what is in it. Objects of kernels find the runtime by that
// name, wherever it was loaded from first, so the device must use that one too: devices with other cache
// folders may have loaded it before, or at this moment.
func loadOnce(path string) (uintptr, error) {
	const resident = 4 // RTLD_NOLOAD: only what is loaded already, the first of its name
	name := filepath.Base(path)
	if handle, err := purego.Dlopen(name, purego.RTLD_NOW|resident); err == nil {
		return handle, nil
	}
	if _, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL); err != nil {
		return 0, err
	}
	return purego.Dlopen(name, purego.RTLD_NOW|resident)
}

func properties(o Options) (metal.Properties, error) {
	memory := o.MemoryBytes
	if memory <= 0 {
		var s unix.Sysinfo_t
		if err := unix.Sysinfo(&s); err != nil {
			return metal.Properties{}, fmt.Errorf("read the machine's memory size: %w", err)
		}
		memory = int64(s.Totalram) * int64(s.Unit) / 4 * 3
	}
	return metal.Properties{
		Name: "soft (" + o.Mode.String() + ")", PageBytes: os.Getpagesize(), MaxBufferBytes: memory, WorkingSetBytes: memory,
		MaxThreads: 1024, ThreadgroupMemory: 32 << 10, SimdWidth: 32,
	}, nil
}

// Properties implements metal.Device.
func (d *device) Properties() metal.Properties { return d.props }

// AllocatedBytes implements metal.Device.
func (d *device) AllocatedBytes() int64 { return d.allocated.Load() }

// Close implements metal.Device.
func (d *device) Close() error {
	var err error
	d.closed.Do(func() {
		if d.private != "" {
			err = os.RemoveAll(d.private)
		}
	})
	return err
}
