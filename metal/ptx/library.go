//go:build linux && (amd64 || arm64)

package ptx

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"lector/metal"
	"lector/metal/msl"
)

// library implements metal.Library.
type library struct {
	device *device
	unit   *unit
}

// Compile implements metal.Device.
func (d *device) Compile(source metal.Source) (metal.Library, error) {
	u, err := d.translator.translate(source)
	if err != nil {
		return nil, err
	}
	return &library{device: d, unit: u}, nil
}

// Kernels implements metal.Library.
func (l *library) Kernels() []string {
	names := make([]string, len(l.unit.Kernels))
	for i, k := range l.unit.Kernels {
		names[i] = k.Name
	}
	return names
}

// Close implements metal.Library.
func (l *library) Close() error { return nil }

// pipeline implements metal.Pipeline: a module of the driver with one kernel.
type pipeline struct {
	device     *device
	kernel     *msl.Kernel
	module     uintptr
	function   uintptr
	maxThreads int
	shared     int // bytes of threadgroup arrays
	closed     atomic.Bool
}

// Pipeline implements metal.Library.
func (l *library) Pipeline(kernel string, constants []metal.Constant) (metal.Pipeline, error) {
	i := slices.IndexFunc(l.unit.Kernels, func(k msl.Kernel) bool { return k.Name == kernel })
	if i < 0 {
		return nil, fmt.Errorf("%w: %s has no kernel %q, only %s", metal.ErrNoKernel, l.unit.Name, kernel, strings.Join(l.Kernels(), ", "))
	}
	text, err := l.unit.specialised(kernel, constants)
	if err != nil {
		return nil, fmt.Errorf("pipeline of %s: %w", kernel, err)
	}
	p := &pipeline{device: l.device, kernel: &l.unit.Kernels[i]}
	if err := l.device.do(func() error { return p.load(text) }); err != nil {
		return nil, errors.Join(fmt.Errorf("pipeline of %s: %w", kernel, err), p.Close())
	}
	return p, nil
}

// load lets the driver compile the text and reads what came of it.
func (p *pipeline) load(text string) error {
	driver := p.device.driver
	image := append([]byte(text), 0)
	log := make([]byte, 16<<10)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&log[0]) // the driver gets its address as a number
	options := []int32{jitErrorLog, jitErrorLogBytes}
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	s := driver.moduleLoad(&p.module, &image[0], uint32(len(options)), &options[0], &values[0])
	if err := driver.check("compile PTX", s); err != nil {
		said, _, _ := bytes.Cut(log, []byte{0})
		if s == statusBadPTX || s == statusBadPTXLevel {
			err = fmt.Errorf("%w: %w", metal.ErrCompile, err)
		}
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	name := append([]byte(msl.LauncherPrefix+p.kernel.Name), 0)
	var threads, shared int32
	err := errors.Join(
		driver.check("find it", driver.moduleFunction(&p.function, p.module, &name[0])),
		driver.check("read its limits", driver.functionGet(&threads, functionThreads, p.function)),
		driver.check("read its limits", driver.functionGet(&shared, functionShared, p.function)))
	p.maxThreads, p.shared = int(threads), int(shared)
	return err
}

// Kernel implements metal.Pipeline.
func (p *pipeline) Kernel() string { return p.kernel.Name }

// MaxThreads implements metal.Pipeline.
func (p *pipeline) MaxThreads() int {
	if n := p.kernel.MaxThreads; n > 0 {
		return min(n, p.maxThreads)
	}
	return p.maxThreads
}

// Close implements metal.Pipeline.
func (p *pipeline) Close() error {
	if p.closed.Swap(true) || p.module == 0 {
		return nil
	}
	err := p.device.do(func() error { return p.device.driver.check("unload a kernel", p.device.driver.moduleUnload(p.module)) })
	if p.device.lost.Load() != nil {
		return nil
	}
	return err
}
