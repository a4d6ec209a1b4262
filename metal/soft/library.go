//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ebitengine/purego"

	"lector/metal"
	"lector/metal/msl"
)

// loaded is an object in memory; it is unloaded with its last user.
type loaded struct {
	object
	handle uintptr
	users  atomic.Int64
}

func (l *loaded) release() error {
	if l.users.Add(-1) > 0 {
		return nil
	}
	return purego.Dlclose(l.handle)
}

// library implements metal.Library.
type library struct {
	device *device
	name   string
	loaded *loaded
	closed atomic.Bool
}

// Compile implements metal.Device.
func (d *device) Compile(source metal.Source) (metal.Library, error) {
	o, err := d.compiler.library(source, d.runtime)
	if err != nil {
		return nil, err
	}
	handle, err := purego.Dlopen(o.path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", source.Name, err)
	}
	l := &library{device: d, name: source.Name, loaded: &loaded{object: o, handle: handle}}
	l.loaded.users.Store(1)
	return l, nil
}

// Kernels implements metal.Library.
func (l *library) Kernels() []string {
	names := make([]string, len(l.loaded.unit.Kernels))
	for i, k := range l.loaded.unit.Kernels {
		names[i] = k.Name
	}
	return names
}

// Close implements metal.Library.
func (l *library) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	return l.loaded.release()
}

// pipeline implements metal.Pipeline.
type pipeline struct {
	device    *device
	kernel    *msl.Kernel
	loaded    *loaded
	function  uintptr
	constants *cConstants
	closed    atomic.Bool
}

// Pipeline implements metal.Library.
func (l *library) Pipeline(kernel string, constants []metal.Constant) (metal.Pipeline, error) {
	unit := l.loaded.unit
	i := slices.IndexFunc(unit.Kernels, func(k msl.Kernel) bool { return k.Name == kernel })
	if i < 0 {
		return nil, fmt.Errorf("%w: %s has no kernel %q, only %s", metal.ErrNoKernel, l.name, kernel, strings.Join(l.Kernels(), ", "))
	}
	p := &pipeline{device: l.device, kernel: &unit.Kernels[i], loaded: l.loaded, constants: &cConstants{}}
	for _, c := range constants {
		if err := p.constants.set(unit, c); err != nil {
			return nil, fmt.Errorf("pipeline of %s: %w", kernel, err)
		}
	}
	var err error
	if p.function, err = purego.Dlsym(l.loaded.handle, msl.LauncherPrefix+kernel); err != nil {
		return nil, fmt.Errorf("pipeline of %s: %w", kernel, err)
	}
	l.loaded.users.Add(1)
	return p, nil
}

// Kernel implements metal.Pipeline.
func (p *pipeline) Kernel() string { return p.kernel.Name }

// MaxThreads implements metal.Pipeline.
func (p *pipeline) MaxThreads() int {
	if n := p.kernel.MaxThreads; n > 0 {
		return min(n, p.device.props.MaxThreads)
	}
	return p.device.props.MaxThreads
}

// Close implements metal.Pipeline.
func (p *pipeline) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	return p.loaded.release()
}
