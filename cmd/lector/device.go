package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/metal"
	"lector/metal/apple"
	"lector/metal/ptx"
	"lector/metal/soft"
)

// deviceNames are what --device takes.
func deviceNames() []string { return []string{"auto", "metal", "cuda", "cpu", "soft"} }

// computing is a backend with what has to be closed after it.
type computing struct {
	ops.Backend
	kind  string // as --device takes it
	name  string // of the device, for people
	close func() error
}

// openBackend opens the device that --device names. A device that was asked for and is not there is an error,
// never another device; auto takes Metal, then CUDA, then the CPU. A GPU that shares the host's memory reads weights
// in mapped files where they are.
func (a *app) openBackend(mapped [][]byte) (*computing, error) {
	switch a.device {
	case "cpu":
		return a.openCPU()
	case "metal", "cuda", "soft":
		b, err := a.openGPU(a.device, gpu.Options{Float32: a.float32, Mapped: mapped})
		if errors.Is(err, metal.ErrUnavailable) {
			err = badInput(fmt.Errorf("--device %s: %w", a.device, err))
		}
		return b, err
	case "auto":
		for _, name := range []string{"metal", "cuda"} {
			b, err := a.openGPU(name, gpu.Options{Float32: a.float32, Mapped: mapped})
			if !errors.Is(err, metal.ErrUnavailable) {
				return b, err
			}
		}
		return a.openCPU()
	}
	return nil, badInput(fmt.Errorf("--device %q: it is one of %s", a.device, strings.Join(deviceNames(), ", ")))
}

// autoClass stands for the class that this machine computes fastest.
const autoClass = "auto"

func (a *app) openCPU() (*computing, error) {
	class := a.class
	if class == autoClass {
		class = cpu.Fastest()
	}
	if !slices.Contains(cpu.Classes(), class) {
		return nil, badInput(fmt.Errorf("--class %q: the CPU computes %s, or what is fastest: auto", class, strings.Join(cpu.Classes(), " or ")))
	}
	if lacks := cpu.Lacks(class); lacks != "" {
		return nil, badInput(fmt.Errorf("--class %s: this processor has no %s, or its system does not lend them: use --class %s", class, lacks, autoClass))
	}
	be := cpu.New(cpu.Options{Class: class, Workers: a.workers})
	return &computing{Backend: be, kind: cpuDevice, name: cpuDevice, close: func() error { return nil }}, nil
}

// openGPU opens the kernels on a device. Each kind of device orders its sums in its own way: a class of its own.
func (a *app) openGPU(name string, o gpu.Options) (*computing, error) {
	device, err := a.openDevice(name)
	if err != nil {
		return nil, err
	}
	o.Family = map[string]string{"metal": "metal", "cuda": "ptx", "soft": "soft"}[name]
	b, err := gpu.New(device, o)
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return &computing{Backend: b, kind: name, name: device.Properties().Name, close: func() error { return errors.Join(b.Close(), device.Close()) }}, nil
}

// openDevice opens a device without anything on it.
func (a *app) openDevice(name string) (metal.Device, error) {
	switch name {
	case "metal":
		return apple.Open()
	case "cuda":
		return ptx.Open(ptx.Options{Cache: kernelCache("ptx")})
	}
	return soft.Open(soft.Options{Cache: kernelCache("soft"), Workers: a.workers})
}

// kernelCache is where compiled kernels are kept; "" where the user has no such place.
func kernelCache(kind string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "lector", kind)
}
