// Package ptx is a metal.Device on an NVIDIA GPU: the same kernel sources, by way of clang to PTX and by the
// driver's own compiler to the chip. It needs the driver's library alone: no CUDA toolkit, no cgo.
//
// It owns the way of a source to PTX (Translate), the headers in rt that stand for Metal's library there, and
// the calls of the driver. What it promises beyond metal.Device:
//
//  1. Buffers of NewBuffer are host memory that the device reads and writes in place, over the bus. Wrapped memory is
//     used in place where the driver can lock it; else, as for mappings that nobody may write, the device has a
//     copy of its own, made once. Memory on the device itself is metal.LocalMemory's to give.
//  2. Queues are streams. A queue that waits for an event of another is held by the GPU, without the host, once that
//     other's work has been handed over; until then, and for events that the host raises, it is not handed over.
//     So no order of commits blocks the GPU's own queues.
//  3. Function constants are numbers in the PTX of a pipeline, so the driver's compiler leaves out what they exclude.
//  4. What was translated is kept in Options.Cache by the digest of source, headers and flags, failures too: a machine
//     without clang runs what another has translated. Several processes may share the folder.
//  5. Half-precision simdgroup matrices run on tensor cores; float32 ones are exact products by fused multiply-adds.
//  6. A kernel that faults ends its queue's work with an error that names the kernels it could be, and the one that
//     it is with Options.Careful. The device is lost then: every later call says so.
//
// It refuses simdgroup functions in divergent flow, which the software device finds, and grids of more than 65,535
// threadgroups along y or z. Sums of half products, exponentials and logarithms are near those of other devices, not
// their bits.
//
// Any goroutine may call it, as metal.Device says; every queue has two goroutines, each with an OS thread that holds the
// device's context. Start reading at Open, then queue.submit.
package ptx

import "errors"

// ErrLost says that a kernel's fault, or the machine, took the device away. Another can be opened only by another
// process.
var ErrLost = errors.New("the device is lost")

// Options says how a device is opened. The zero value is the first GPU.
type Options struct {
	// Ordinal is the number of the GPU among those that the driver shows.
	Ordinal int
	// Cache is the folder of translated sources; it is made where it is missing. Empty stands for a folder of
	// this device alone, which Close removes.
	Cache string
	// Compiler is the C++ compiler; empty stands for clang++-19 on the PATH. Without one, only what Cache holds runs.
	Compiler string
	// Careful waits for each dispatch, so that a fault names its kernel. It is slow.
	Careful bool
}

// Install says how to get the compiler.
const Install = "apt-get install --no-install-recommends clang-19"

const defaultCompiler = "clang++-19"
