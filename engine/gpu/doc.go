// Package gpu is ops.Backend on a metal.Device: the same network code as the CPU runs, as kernels of package shaders.
//
// The numeric class is "metal-h1": dense and expert products take both operands in half and add up in float32; every
// norm, gate, state and the residual is float32. With Options.Float32 it is "metal-f32", where products are staged in
// float32 as well. Neither is one written order of sums (the matrix unit of the device has its own), so both are
// bounded classes, compared with cpu-f32 within stated bounds. The grid is 512 tokens.
//
// What the package promises:
//
//  1. A row's result does not depend on what the rows beside it hold. Products, attention and experts of up to
//     shaders.VectorRows rows go through kernels that compute in float32 and add up in another order than the tiles that
//     more rows go through; on either side of that number a row's bits are the same for every number of rows, so drafts
//     never change a result.
//  2. Operations are encoded when they are called and run in that order. Nothing is waited for but in Wait, once in
//     RunExperts where it reads the routing (few rows whose layer is on the device with all its experts leave that to the
//     device), and where Alloc finds memory that pending work still uses. A wait reads
//     the status and the error of every command buffer that it finds done.
//  3. The first failure since the last Wait makes everything after it a no-op, and Wait returns it; an error of the
//     device names the kernel and is ErrDevice.
//  4. Weights are read in place where they lie in Options.Mapped, else copied to the device once. They are known by
//     their address: a matrix or vector that was passed once must stay as it is while the Backend lives.
//  5. Freed memory is given back to the device once no pending work can use it. Options.MemoryBytes bounds all that the
//     Backend holds on the device: tensors, scratch and copies.
//  6. What operations work in beside tensors, weights and slots is one layout (layout.go), which WorkBytes sizes and
//     Reserve allocates. It only grows, and DropScratch gives all of it back.
//
// It refuses shapes that do not fit by panicking: that is a fault in the network. Its methods may be called from any
// goroutine, one operation at a time runs through a lock; what makes two of them a sequence is the caller's order.
//
// Start reading at Backend, then dispatch in encode.go, then Linear. An operation is: fit, begin, one or more
// dispatches, end.
package gpu
