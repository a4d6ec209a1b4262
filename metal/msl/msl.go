// Package msl rewrites Metal Shading Language into C++ that clang compiles for another machine than Apple's.
//
// It owns the reading of kernel sources: which kernels there are, what their arguments bind to, which
// function constants they ask for. What it promises:
//
//  1. Line numbers survive: a compiler's message about the rewritten text names the line of the source.
//  2. A source that it cannot rewrite is an error that names file and line; it never panics, whatever the text.
//  3. The rewritten body is one for all targets: launchers are written apart, by CPULaunchers and CheckLaunchers.
//
// It compiles nothing and reads no file; Marked says what a C preprocessor makes its input of. Only the dialect of
// our kernels is covered: compute kernels, no textures, no argument buffers. All functions are pure and may
// be called from any goroutine. Start reading at Rewrite.
package msl

// MaxBindings is how many buffers, and how many threadgroup arguments, a kernel can have.
const MaxBindings = 31

// MaxArrays is how many threadgroup arrays one kernel can declare.
const MaxArrays = 32

// Kind says what an argument of a kernel is bound to.
type Kind string

// The kinds of arguments.
const (
	KindBuffer      Kind = "buffer"      // a pointer into a bound buffer
	KindReference   Kind = "reference"   // a reference to a bound struct or number
	KindThreadgroup Kind = "threadgroup" // threadgroup memory sized by the host
	KindBuiltin     Kind = "builtin"     // a position or a count
)

// Argument is one parameter of a kernel.
type Argument struct {
	Name     string
	Type     string // as written, with address space
	Kind     Kind
	Index    int    // of the binding; 0 for builtins
	Builtin  string // the field of the thread's identity that it reads
	Const    bool   // the kernel cannot write through it
	Optional bool   // bound only where a function constant asks for it
}

// Kernel is one entry point.
type Kernel struct {
	Name       string // what the host asks for
	Call       string // the C++ expression to call, such as gemm<half, 4>
	Arguments  []Argument
	MaxThreads int  // the kernel's own bound on a threadgroup, 0 for none
	Early      bool `json:",omitempty"` // it says by itself from where on it needs what kernels before it write
}

// Constant is one function constant.
type Constant struct {
	Name  string
	Type  string // bool, int, uint or float
	Index int
}

// Unit is a rewritten source.
type Unit struct {
	Kernels   []Kernel // sorted by name
	Constants []Constant
	Body      string // C++ for the headers of a target
}
