// Package selfcheck compares a backend with another, operation by operation: what the owner of a device runs first.
//
// It owns a table of shapes for every operation of engine/ops: one row, ragged tails, ties, experts without rows, heads
// of the released size, every way a matrix or a cache is stored, records that stream through slots. The values come
// from a seed; some are chosen so that a kernel that is wrong in a usual way shows it.
//
// What it promises:
//
//  1. Both backends get the same operands, and outputs hold NaN before they are written, so that what is not written
//     counts as wrong.
//  2. Choices of blocks and experts are compared exactly, everything else within a bound that is stated beside it.
//  3. An operation that fails is a result with its error, and the others still run.
//
// It measures no speed and knows no device. Start reading at Run.
package selfcheck
