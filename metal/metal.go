// Package metal is the part of Metal that this project uses, as interfaces: a device with its buffers,
// kernel libraries, queues, command buffers, encoders and events. It knows no model.
//
// Devices that implement it: metal/apple (the real one) and metal/soft (the same kernel sources on this CPU).
// metal/record is a device that executes nothing and counts, metal/encode what the command buffers of all of them do
// alike, and metal/metaltest the suite that holds a device to this contract.
//
// What an implementation promises:
//
//  1. Command buffers of one queue run in the order of Commit; dispatches of one encoder in the order of
//     encoding, each seeing what the ones before it wrote. Across queues only events order work.
//  2. Work that was committed ends: Wait returns its error, which names the encoder by its label, and the
//     events that it was to raise have been raised by then, so that an error leaves nobody waiting.
//  3. A source that does not compile, a kernel that a library lacks and a size beyond the device's limits
//     are errors where they are asked for, never a device fault later. Misuse of an encoder, which returns
//     no error, is the error of Commit: it names encoder and kernel, and nothing of that buffer runs.
//  4. Closing what committed work still uses is the caller's fault; closing twice is harmless.
//
// It refuses textures, argument buffers and hazard tracking: the caller orders its work. A Device, its
// buffers, pipelines and events may be used from any goroutine; a CommandBuffer and its Encoder from one at
// a time, until Commit. Start reading at Device, then Encoder.
package metal

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrUnavailable says that this machine has no such device, or that this program was built without it.
	ErrUnavailable = errors.New("no such device here")
	// ErrCompile says that a kernel source does not compile; the message has the compiler's lines.
	ErrCompile = errors.New("kernel source does not compile")
	// ErrNoKernel says that a library has no kernel of a name; the message lists those that it has.
	ErrNoKernel = errors.New("no such kernel")
	// ErrMemory says that the device has no memory left for an allocation.
	ErrMemory = errors.New("device memory is exhausted")
	// ErrTimeout says that the device did not reach a point in the time it was given.
	ErrTimeout = errors.New("device did not finish in time")
)

// Device is one GPU, or what stands in for one.
type Device interface {
	// Properties says what the device is and can hold.
	Properties() Properties
	// NewBuffer allocates size bytes, zeroed, that host and device share. ErrMemory.
	NewBuffer(size int) (Buffer, error)
	// WrapBuffer lets the device read host memory in place, such as a mapped file. data must begin at a
	// multiple of Properties.PageBytes and stay as it is until the buffer is closed.
	WrapBuffer(data []byte) (Buffer, error)
	// Compile makes a library of kernel source. ErrCompile.
	Compile(source Source) (Library, error)
	// NewQueue opens a queue of command buffers; label names it in traces.
	NewQueue(label string) (Queue, error)
	// NewEvent makes an event whose value is 0.
	NewEvent() (SharedEvent, error)
	// AllocatedBytes is what its buffers hold now, wrapped memory aside.
	AllocatedBytes() int64
	// Close releases the device. Everything made from it must be closed first.
	Close() error
}

// Properties describes a device.
type Properties struct {
	Name              string
	PageBytes         int   // allocations are rounded up to it
	MaxBufferBytes    int64 // of one buffer
	WorkingSetBytes   int64 // what the device can keep resident before it slows down
	MaxThreads        int   // of one threadgroup
	ThreadgroupMemory int   // bytes of one threadgroup
	SimdWidth         int   // threads that run in lockstep
}

// Buffer is memory of the device.
type Buffer interface {
	// Bytes is the host's view of the whole buffer. While committed work writes a range, the host must not
	// read it, and while committed work uses a range, the host must not write it.
	Bytes() []byte
	// Close gives the memory back.
	Close() error
}

// LocalMemory is implemented by a device whose own memory lies apart from the host's, such as a graphics card. On others
// there is nothing nearer than NewBuffer's.
type LocalMemory interface {
	// NewLocalBuffer allocates size bytes, zeroed, in the device's own memory. ErrMemory.
	NewLocalBuffer(size int) (LocalBuffer, error)
}

// Copier is what a command buffer of a device with memory of its own may be besides: one that copies by engines of the
// device for it, beside the kernels of other queues.
type Copier interface {
	// Copy copies n bytes between buffers, from offsets on, in the order of what is encoded; outside of an encoder.
	Copy(to Buffer, offset int, from Buffer, at, n int)
}

// LocalBuffer is memory that the host has a copy of. Each call of Bytes brings over what the device has written since,
// and what the host then writes goes back with the next committed work that binds the buffer. So the rules of Buffer
// hold for the whole buffer instead of ranges, and Bytes must be called anew for each look or change.
type LocalBuffer interface {
	Buffer
	// Window is a part of Bytes: size bytes from an offset on, and nothing else comes over or goes back.
	Window(offset, size int) []byte
	// Write puts data at an offset in bytes, without a copy on the host. No committed work may use them.
	Write(offset int, data []byte) error
}

// Source is one library's kernel source, whole: there is no include path.
type Source struct {
	Name     string // in messages
	Text     string
	FastMath bool // lets the compiler reorder and approximate: never where bits matter
}

// Library is compiled kernel source.
type Library interface {
	// Kernels lists the names of its kernels, sorted.
	Kernels() []string
	// Pipeline makes one kernel ready to run, with constants for its function constants by index.
	Pipeline(kernel string, constants []Constant) (Pipeline, error)
	// Close releases the library; its pipelines live on.
	Close() error
}

// Constant is the value of a function constant: Value is a bool, an int32, a uint32 or a float32.
type Constant struct {
	Index int
	Value any
}

// Pipeline is a kernel ready to run.
type Pipeline interface {
	// Kernel is its name.
	Kernel() string
	// MaxThreads is the largest threadgroup it can run in, less than the device's where it needs many
	// registers.
	MaxThreads() int
	// Close releases the pipeline.
	Close() error
}

// Queue runs command buffers in the order of their commits.
type Queue interface {
	// NewCommandBuffer starts a command buffer; label names it in errors and traces.
	NewCommandBuffer(label string) (CommandBuffer, error)
	// Close releases the queue after its work has ended.
	Close() error
}

// CommandBuffer is work in the making, then under way, then done. It is used once.
type CommandBuffer interface {
	// Encoder begins a run of dispatches. One at a time: End it before the next call here.
	Encoder(label string) (Encoder, error)
	// WaitEvent holds what is encoded after it until the event has reached value.
	WaitEvent(event SharedEvent, value uint64)
	// SignalEvent raises the event to value when what is encoded before it is done.
	SignalEvent(event SharedEvent, value uint64)
	// Commit hands the work to the queue. Nothing can be encoded after it.
	Commit() error
	// Wait returns when the work is done, with its error. It may be called more than once. When ctx ends
	// first it returns the context's error, and the work goes on: nothing may be freed before a later Wait.
	Wait(ctx context.Context) error
	// DeviceTime is how long the device worked on it; known after Wait.
	DeviceTime() time.Duration
}

// Encoder writes dispatches. Bindings stay until they are replaced.
type Encoder interface {
	// SetPipeline chooses the kernel of the dispatches that follow.
	SetPipeline(p Pipeline)
	// SetBuffer binds a buffer from an offset in bytes at the kernel's buffer index.
	SetBuffer(index int, b Buffer, offset int)
	// SetBytes binds a copy of a small constant block, at most 4 KiB, at the kernel's buffer index.
	SetBytes(index int, block []byte)
	// SetThreadgroupMemory sets the size in bytes of the kernel's threadgroup argument.
	SetThreadgroupMemory(index, size int)
	// Dispatch runs groups threadgroups of threads threads each. No dimension is zero.
	Dispatch(groups, threads Size)
	// End closes the encoder.
	End()
}

// Size counts in three dimensions.
type Size struct{ X, Y, Z int }

// Count is the product of the three.
func (s Size) Count() int { return s.X * s.Y * s.Z }

// SharedEvent is a value that only grows, seen by host and device. Each event has one writer.
type SharedEvent interface {
	// Value is what the event has reached.
	Value() uint64
	// Signal raises it from the host.
	Signal(value uint64)
	// Wait returns when it has reached value: ErrTimeout after the given time.
	Wait(value uint64, timeout time.Duration) error
	// Close releases the event.
	Close() error
}
