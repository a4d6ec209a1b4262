// Package apple is the metal.Device of Apple Silicon: the Metal framework, called without cgo.
//
// It owns the Objective-C side: every object's ownership, the autorelease pools, the text of errors. What it
// promises beyond metal.Device:
//
//  1. Nothing is encoded before Commit: a command buffer is a list in Go until then, so that misuse is an
//     error of Commit and never an assertion of Metal, which would end the process.
//  2. Objective-C work happens inside an autorelease pool on a locked OS thread; what outlives the pool is
//     retained, and released once.
//  3. One goroutine a queue waits for its command buffers in order. When one fails, the events that it was
//     to raise are raised there, so that other queues and the host go on.
//  4. An error of Metal is copied whole: domain, code, text and the encoder that failed.
//  5. The language version is set, and not left to the SDK that the program seems to be linked against.
//  6. Allocated buffers are kept resident where the system has residency sets (macOS 15); wrapped memory,
//     which may be larger than the machine's, never is.
//
// Buffers have Metal's default hazard tracking, and encoders dispatch serially: within a queue Metal orders
// what touches one buffer. The package builds on darwin/arm64; on linux the binding is compiled too, for
// tests against a fake Objective-C runtime, and Open returns metal.ErrUnavailable. Goroutines: as
// metal.Device says. Start reading at Open, then commands.encode.
package apple

// languageVersion is Metal 3.1, the first with bfloat.
const languageVersion = 3<<16 | 1
