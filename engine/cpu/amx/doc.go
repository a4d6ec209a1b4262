// Package amx computes products of float32 rows with stored weights in the tile registers of x86 (AMX), whose
// multiply-adds take bf16. It is the arithmetic of the numeric class "cpu-amx" of package cpu, which says what else the
// class is made of.
//
// A float32 is three bf16: the upper 16 bits of it, those of what is left, and the rest, so that nothing is lost. A bf16
// weight is one, and so is a code of up to 8 bits, less 2^(bits-1), which moves to the bias: bias + scale * 2^(bits-1), rounded
// once. So every product is exact, and only sums are rounded.
//
// The order, for a row of x and a row of weights:
//
//  1. A group is that of the affine weights; of bf16 weights it is Group inputs, with scale 1 and bias 0.
//  2. In a group, a step is 32 inputs, ascending, and in a step the parts of x go from the largest to the smallest. Of each
//     the products of even inputs are added up from zero, ascending, and so are those of odd inputs, each addition
//     rounded; the two sums are added, and the result is added to the group's sum, which begins at zero.
//     A subnormal is zero there, as an input and as a result.
//  3. The inputs of a group are also added up alone, in float32: input i goes to lane i mod 16, i ascending; then the upper
//     half of the lanes is added to the lower, four times.
//  4. From zero, groups ascending: y = fma(scale, sum of products, y), then y = fma(bias, sum of inputs, y).
//
// What the package promises: the same bits from the tile registers and from plain Go, for finite numbers; a row's result
// does not depend on the rows beside it. It is used where Here says that the processor and the system have tiles; plain
// Go is there to compare with, and hundreds of times slower. Nothing here starts a goroutine or keeps what it is given, and a
// goroutine may move to another thread between two calls.
//
// Start reading at Set.Multiply.
package amx
