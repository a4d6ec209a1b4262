//go:build linux && (amd64 || arm64)

package ptx

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"lector/metal"
)

// libraryName is the driver's library, which its installation puts on the loader's path.
const libraryName = "libcuda.so.1"

// status is what the driver's calls return.
type status int32

// The statuses that are told apart.
const (
	statusOK          status = 0
	statusMemory      status = 2
	statusBadPTX      status = 218
	statusBadPTXLevel status = 222
	statusNotReady    status = 600
)

// lost says that no call of this context can succeed any more.
func (s status) lost() bool {
	switch s {
	case 4, 46, 214, 220, 700, 702, 709, 714, 715, 716, 717, 718, 719:
		return true // deinitialized, unavailable, ECC, NVLink, and the faults of kernels
	}
	return false
}

// The flags that calls get.
const (
	hostPortable     = 1 // memory for all contexts
	hostDeviceMap    = 2
	streamApart      = 1 // not ordered with the default stream
	eventBlocking    = 1 // waiting threads sleep
	eventUntimed     = 2
	attributeCap     = 75 // and 76: major and minor compute capability
	attributeThreads = 1
	attributeShared  = 8
	functionThreads  = 0
	functionShared   = 1
	jitErrorLog      = 5
	jitErrorLogBytes = 6
)

// driver is the part of the CUDA driver's interface that is used, by the names of its functions.
type driver struct {
	init            func(flags uint32) status
	version         func(v *int32) status
	deviceCount     func(n *int32) status
	device          func(d *int32, ordinal int32) status
	deviceName      func(name *byte, length, d int32) status
	deviceAttribute func(v *int32, attribute, d int32) status
	contextRetain   func(c *uintptr, d int32) status
	contextRelease  func(d int32) status
	contextSet      func(c uintptr) status
	memoryInfo      func(free, total *uint64) status
	alloc           func(p *uint64, n uint64) status
	free            func(p uint64) status
	hostRegister    func(p unsafe.Pointer, n uint64, flags uint32) status
	hostUnregister  func(p unsafe.Pointer) status
	hostAddress     func(p *uint64, host unsafe.Pointer, flags uint32) status
	toDevice        func(to uint64, from unsafe.Pointer, n uint64) status
	toHost          func(to unsafe.Pointer, from uint64, n uint64) status
	copyAsync       func(to, from uint64, n uint64, stream uintptr) status
	toDeviceAsync   func(to uint64, from unsafe.Pointer, n uint64, stream uintptr) status
	set8            func(p uint64, v uint8, n uint64) status
	moduleLoad      func(m *uintptr, image *byte, count uint32, options *int32, values *uintptr) status
	moduleUnload    func(m uintptr) status
	moduleFunction  func(f *uintptr, m uintptr, name *byte) status
	functionGet     func(v *int32, attribute int32, f uintptr) status
	streamCreate    func(s *uintptr, flags uint32) status
	streamDestroy   func(s uintptr) status
	streamSync      func(s uintptr) status
	streamWait      func(s, event uintptr, flags uint32) status
	eventCreate     func(e *uintptr, flags uint32) status
	eventRecord     func(e, s uintptr) status
	eventSync       func(e uintptr) status
	eventQuery      func(e uintptr) status
	eventElapsed    func(ms *float32, from, to uintptr) status
	eventDestroy    func(e uintptr) status
	graphCreate     func(g *uintptr, flags uint32) status
	graphAddKernel  func(node *uintptr, g uintptr, after *uintptr, n uint64, p *kernelNode) status
	graphAfter      func(g uintptr, from, to *uintptr, edge *graphEdge, n uint64) status
	graphMake       func(exec *uintptr, g uintptr, flags uint64) status
	graphSetKernel  func(exec, node uintptr, p *kernelNode) status
	graphLaunch     func(exec, stream uintptr) status
	graphDestroy    func(g uintptr) status
	graphExecEnd    func(exec uintptr) status
	statusName      func(s status, text **byte) status
	statusMeaning   func(s status, text **byte) status
	launch          uintptr // called without reflection: it is on the path of every dispatch
}

// functions pairs the driver's names with the fields.
func (d *driver) functions() map[string]any {
	return map[string]any{
		"cuInit": &d.init, "cuDriverGetVersion": &d.version, "cuDeviceGetCount": &d.deviceCount, "cuDeviceGet": &d.device,
		"cuDeviceGetName": &d.deviceName, "cuDeviceGetAttribute": &d.deviceAttribute,
		"cuDevicePrimaryCtxRetain": &d.contextRetain, "cuDevicePrimaryCtxRelease_v2": &d.contextRelease, "cuCtxSetCurrent": &d.contextSet,
		"cuMemGetInfo_v2": &d.memoryInfo, "cuMemAlloc_v2": &d.alloc, "cuMemFree_v2": &d.free,
		"cuMemHostRegister_v2": &d.hostRegister, "cuMemHostUnregister": &d.hostUnregister, "cuMemHostGetDevicePointer_v2": &d.hostAddress,
		"cuMemcpyAsync": &d.copyAsync, "cuMemcpyHtoD_v2": &d.toDevice, "cuMemcpyDtoH_v2": &d.toHost, "cuMemcpyHtoDAsync_v2": &d.toDeviceAsync, "cuMemsetD8_v2": &d.set8,
		"cuModuleLoadDataEx": &d.moduleLoad, "cuModuleUnload": &d.moduleUnload, "cuModuleGetFunction": &d.moduleFunction, "cuFuncGetAttribute": &d.functionGet,
		"cuStreamCreate": &d.streamCreate, "cuStreamDestroy_v2": &d.streamDestroy, "cuStreamSynchronize": &d.streamSync, "cuStreamWaitEvent": &d.streamWait,
		"cuEventCreate": &d.eventCreate, "cuEventRecord": &d.eventRecord, "cuEventSynchronize": &d.eventSync, "cuEventQuery": &d.eventQuery,
		"cuEventElapsedTime": &d.eventElapsed, "cuEventDestroy_v2": &d.eventDestroy,
		"cuGraphCreate": &d.graphCreate, "cuGraphAddKernelNode": &d.graphAddKernel, "cuGraphAddDependencies_v2": &d.graphAfter, "cuGraphInstantiateWithFlags": &d.graphMake,
		"cuGraphExecKernelNodeSetParams": &d.graphSetKernel, "cuGraphLaunch": &d.graphLaunch, "cuGraphDestroy": &d.graphDestroy, "cuGraphExecDestroy": &d.graphExecEnd,
		"cuGetErrorName": &d.statusName, "cuGetErrorString": &d.statusMeaning,
	}
}

// loadDriver loads the driver's library and begins with it.
func loadDriver() (*driver, error) {
	handle, err := purego.Dlopen(libraryName, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: no NVIDIA driver: %w", metal.ErrUnavailable, err)
	}
	d := &driver{}
	for name, field := range d.functions() {
		f, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("%w: the NVIDIA driver is too old: %w", metal.ErrUnavailable, err)
		}
		purego.RegisterFunc(field, f)
	}
	if d.launch, err = purego.Dlsym(handle, "cuLaunchKernel"); err != nil {
		return nil, fmt.Errorf("%w: the NVIDIA driver is too old: %w", metal.ErrUnavailable, err)
	}
	if err := d.check("begin", d.init(0)); err != nil {
		return nil, fmt.Errorf("%w: the NVIDIA driver does not start: %w", metal.ErrUnavailable, err)
	}
	return d, nil
}

// check is the error of a call, with the driver's name for it and what was being done.
func (d *driver) check(doing string, s status) error {
	if s == statusOK {
		return nil
	}
	err := fmt.Errorf("%s: %s (%s, %d)", doing, d.text(d.statusMeaning, s), d.text(d.statusName, s), int32(s))
	switch {
	case s == statusMemory:
		return fmt.Errorf("%w: %w", metal.ErrMemory, err)
	case s.lost():
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// text is a string of the driver's, which it never frees.
func (d *driver) text(of func(status, **byte) status, s status) string {
	var first *byte
	if of(s, &first) != statusOK || first == nil {
		return "unknown error"
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(first), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(first, n))
}
