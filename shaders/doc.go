// Package shaders holds the kernel sources and the parameter blocks that they share with Go.
//
// A library is a block of the model: its kernels are named block_verb, and the block is the library's name. Each
// library is one text, made of the headers, the layout asserts, common/prelude.metal, common/stored.metal and the
// block's own files, with #line directives, so that a compiler's message names the file that a person can open. A
// metal.Device compiles that text as it is; there is no include path.
//
// What the package promises:
//
//  1. params.h and params_blocks.h alone declare the parameter blocks, the buffer indices and the function constants.
//     `go generate ./shaders` writes their Go side; a test fails where it is stale, where a Go layout differs, and the
//     shader text refuses to compile where the compiler's layout differs.
//  2. Every kernel's comment says what it computes, which thread owns what, and the shape of every buffer.
//  3. The sources keep to the dialect that every device can read: explicit [[buffer(n)]], function-like constructors,
//     no function of a simdgroup in divergent flow, no lane map of matrices outside one place.
//
// It imports nothing of ours but the reader of its headers and keeps no state. README.md lists the kernels by
// block and the dialect. Start reading at Source, then common/prelude.metal.
package shaders

//go:generate go run ./params/generate
