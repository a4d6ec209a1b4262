// Package soft is a metal.Device that runs Metal kernels on this machine's processor. It is for tests, for
// continuous integration and for trying things without an Apple GPU.
//
// It owns the way of a kernel source to machine code: clang's preprocessor, the rewriter of metal/msl, clang
// again with the headers of rt, and a runtime in C++ that runs each thread of a threadgroup as a fiber.
// What it promises beyond metal.Device:
//
//  1. A kernel's fault is an error that names the kernel, the line and the thread, never a crash: reading or
//     writing beyond a buffer or a threadgroup array, a barrier or a simdgroup function that some threads do
//     not reach, too much threadgroup memory, an argument that is not bound.
//  2. Threadgroup memory holds NaNs before a group writes it, and buffers end at a page that nobody may touch.
//  3. In mode Race, unordered accesses to one word are errors: between threads without a barrier, between
//     threadgroups, and between queues without an event. Bounds are exact then, in wrapped memory too.
//  4. In mode Undefined, undefined behaviour is an error: shifts, alignment, array bounds, overflow.
//  5. The schedule of threads follows Options.Seed, so that an order that a kernel wrongly relies on can be
//     changed, and a failure repeats.
//  6. Compiled objects are kept in Options.Cache by the digest of everything that they depend on; several
//     processes may share the folder.
//
// It refuses to model what a GPU approximates: fast transcendental functions, denormals, the order of
// floating-point sums in hardware, memory order within a launch beyond the rules of mode Race, and speed.
// The real Metal accepts what this accepts or less: see Check for what can be tested here.
//
// It needs clang 19 at run time, on linux/amd64 or linux/arm64; elsewhere Open returns metal.ErrUnavailable
// and says what to install. Signal handlers for SIGSEGV, SIGBUS and SIGFPE are installed with the first launch;
// they pass on what is not a kernel's. Any goroutine may call it, as metal.Device says. Start reading at
// Open, then Device.Compile in compile.go and queue.run in queue.go.
package soft

import (
	"fmt"
	"os/exec"

	"lector/metal"
)

// Mode chooses what kernels are compiled to detect.
type Mode int

// The modes.
const (
	Plain     Mode = iota // faults at guard pages, barriers, limits
	Race                  // and unordered accesses, and exact bounds; about four times slower
	Undefined             // and undefined behaviour; about as fast as Plain
)

// String is the mode's name.
func (m Mode) String() string {
	switch m {
	case Plain:
		return "plain"
	case Race:
		return "race"
	case Undefined:
		return "undefined"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// Options says how a device runs its kernels. The zero value is a plain device.
type Options struct {
	// Cache is the folder for compiled objects; it is made where it is missing. What lies there is loaded
	// into the process, so nobody else should be able to write it. It only grows. Empty stands for a folder of
	// this device alone, which Close removes.
	Cache string
	// Compiler is the C++ compiler; empty stands for clang++-19 on the PATH.
	Compiler string
	Mode     Mode
	// Seed chooses the order in which threads and threadgroups run: 0 forward, 1 backward, others at random.
	Seed uint64
	// Lenient lets the lanes that reach a barrier or a simdgroup function go on without the others.
	Lenient bool
	// Workers is how many OS threads a dispatch is spread over; 0 stands for GOMAXPROCS.
	Workers int
	// MemoryBytes bounds what the device allocates and is its working set; 0 stands for three quarters of
	// the machine's memory.
	MemoryBytes int64
}

// Install says how to get the compiler.
const Install = "apt-get install --no-install-recommends clang-19"

const defaultCompiler = "clang++-19"

// findCompiler is the path of the compiler, or metal.ErrUnavailable with what to install.
func findCompiler(name string) (string, error) {
	if name == "" {
		name = defaultCompiler
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: the soft device compiles kernels with %s, which is not here (on Debian: %s)", metal.ErrUnavailable, name, Install)
	}
	return path, nil
}
