// Package bfp computes products of float32 rows with affine weights in integers, which processors with AVX-512 VNNI
// multiply and add four at a time, and those with AVX2 in pairs. It is the arithmetic of the numeric class "cpu-bfp24" of
// package cpu, which says what else the class is made of.
//
// Rows are in block floating point: the inputs of a group, that of the weights, are whole numbers of one unit, a power of two.
// Codes are whole numbers as they are. So the sum of a group's products is exact in any order, and is rounded once.
//
// The order, for a row of x and a row of weights:
//
//  1. Of a group, 2^e is the least power of two above the magnitudes of its inputs, and e at least -104. Its unit is
//     2^(e-22), and input i is t_i units, rounded to even: an error of up to 2^-23 of 2^e.
//  2. t_i = 2^16 h_i + 2^8 m_i + l_i, where m_i and l_i are in [-128, 127]: its limbs. H, M and L are the sums of h_i, m_i and
//     l_i times the codes, which are exact, each as a float32. The sum of products is p = unit * fma(fma(H, 256, M), 256, L).
//  3. The sum of inputs is s = unit * float32(sum of t_i).
//  4. From zero, groups ascending: y = fma(scale, p, y), then y = fma(bias, s, y).
//
// A group with an infinity or a NaN gives NaN.
//
// What the package promises: the same bits from VNNI, from AVX2 and from plain Go; a row's result does not depend on the rows beside
// it. It is used where Here says that the processor has kernels; plain Go is there to compare with, and hundreds of times slower.
// Nothing here starts a goroutine or keeps what it is given.
//
// Start reading at Set.Multiply.
package bfp
