// Package cpu is ops.Backend on this machine's cores, in one of the numeric classes "cpu-f32", "cpu-f32-blocked", "cpu-bfp24" and
// "cpu-amx". It is plain Go, with kernels for wide registers where the processor has them (vector.go, packages fma, bfp and amx;
// gen writes the assembly), which give the same bits.
//
// A class is one written order of every sum. This is that of "cpu-f32"; whoever changes a line of it makes another class.
//
//  1. Every operation rounds: a product is rounded to its type before it is added. In the source that is an explicit
//     conversion, float32(x*y) + z, which forbids the compiler to fuse. There is no fused multiply-add.
//  2. Linear: one float32 accumulator for each (row, output), from zero, input index ascending. An affine weight is
//     float32(scale*code) + bias, rounded twice. Experts and the dot products of attention and of the indexer are sums
//     of the same kind, over the head's dimensions.
//  3. Norms, unit norms, block means, the gate scores of PLE and the sums of a softmax: float64 accumulators, index
//     ascending. Products of two float32 are exact there. The result (a norm's factor, a mean, a score) is rounded to
//     float32 once and then multiplied: a norm is float32(float32(x*r)*w).
//  4. Softmax subtracts the maximum. In the router each probability is divided by the sum in float64 and rounded; in
//     attention the weighted sum of values, float32 and tokens ascending, is multiplied by float32(1/sum), then by the
//     gate. Scores are multiplied by float32(1/sqrt(dim)) after their sum. Routing weights are divided by their float32
//     sum in slot order.
//  5. Convolution adds its taps oldest first, streams and slots add up in ascending order, all from zero in float32.
//     The mean over streams divides once at the end.
//  6. DeltaScan, per column of the state and row after row, key index ascending, float32: S = g*S, t = Sᵀk,
//     d = beta*(v-t), S = S + k*d, o = Sᵀq.
//  7. exp, sigmoid and silu are ours, in float32: exp is within 2 ulp, flushes to zero below -87.3 (results under
//     1.22e-38) and is +Inf above 88.72283. The decay of DeltaNet and the angles of a rope are computed in float64 with
//     our own exp, log, sin and cos (within 8e-16 of themselves; sin and cos within 4e-16 to 2^20 radians), and rounded
//     once. Square roots and divisions are IEEE's.
//
// The class "cpu-f32-blocked" is about twice as fast, and differs in this:
//
//  1. Linear, experts, and the scores and weighted values of attention and of the indexer: a product is fused with its
//     addition, acc = fma(x, w, acc), rounded once. One accumulator from zero and ascending inputs, dimensions or tokens,
//     as above. An affine weight of Linear and of experts is fma(scale, code, bias), rounded once.
//  2. Sums in float64 (norms, unit norms, the gate scores of PLE, softmaxes) have sixteen lanes: element i is added to
//     lane i mod 16, i ascending; then the upper half of the lanes is added to the lower, four times. Means of blocks
//     have one accumulator, as above.
//  3. Attention's softmax is of float32(score*scale), which is rounded before the largest is subtracted.
//
// The class "cpu-bfp24" is for processors with AVX-512 VNNI or AVX2, and is "cpu-f32-blocked" but for products with affine weights in
// groups, which are sums of integers: package bfp says how. Rows are in block floating point, of 23 bits and a sign, so that a sum of
// products is nearer to the true one than a chain of float32. A weight of few rows takes less than half as many instructions; with AVX2
// alone, one of many rows takes more.
//
// The class "cpu-amx" is for processors of x86 with tile registers, and up to half as fast again where there are many rows. It is
// "cpu-f32-blocked" but for products with affine and bf16 weights of whole groups, whose order package amx says. It loses
// nothing: a float32 goes through the tiles in three parts. One or few rows take longer than in "cpu-f32-blocked".
//
// What the package promises:
//
//  1. Those bits on every target that Go compiles for, with any number of workers. Blocking over rows and outputs,
//     and SIMD over outputs, columns, keys or elements, keep each accumulator's order, so they are free.
//  2. A row's result does not depend on the rows beside it nor on how many there are. Every node boundary is a
//     multiple of Grid, 512 tokens, though nothing here depends on the cut.
//  3. An operation is finished when it returns, but for those of few rows that a Batch puts off; a panic in one of its
//     goroutines reaches the caller. Those goroutines look out for the next operation for a fraction of a millisecond, and then end.
//  4. Weights stay as stored, but for expert records (ops.Arranger) and a copy of those that have a place for one (ops.Panels), which few rows are
//     multiplied with. An operation decodes 32 or 64 rows at a time. Beyond its tensors it holds scratch for each
//     worker, sized by some rows of attention, one tile of experts or 256 rows of 1024 inputs, and never rows x context.
//  5. A Backend may be used from several goroutines, as long as nobody writes a tensor that another uses.
//
// It refuses shapes and stored sizes that do not fit, ids out of range, and aliasing in Conv, by panicking: those are
// faults in the network; a class that it does not know, in New. NaN and infinities pass through, so that the engine sees them.
//
// Start reading at Backend, then Linear.
package cpu
