// Package fma computes products of float32 rows with stored weights by fused multiply-add, in one written order that
// gives the same bits on every processor: with AVX-512, with AVX2 and FMA, with NEON, and in plain Go. It is the
// arithmetic of the numeric class "cpu-f32-blocked" of package cpu, which says what else the class is made of.
//
// The order:
//
//  1. A chain is one float32 accumulator, from zero: acc = fma(x, w, acc), input index ascending, each step rounded
//     once. A product of a row and a row of weights is one chain. Where the chain is cut into blocks, and what runs
//     beside it, does not change it.
//  2. An affine weight is fma(scale, code, bias), rounded once.
//
// What the package promises: the same bits from every Set that this processor has, for finite numbers and infinities
// alike (which NaN comes out where one does is open). A set that the processor lacks is never chosen. Nothing here
// allocates but Temp, starts a goroutine, or keeps what it is given.
//
// Weights are brought into panels: the weights of one input for 32 outputs side by side, [inputs, 32]. Unpack makes a
// panel from any stored format, Dots multiplies with it.
//
// Start reading at Set.Dots.
package fma
