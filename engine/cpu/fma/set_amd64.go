package fma

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Widest is the largest set of kernels that this processor and its system can run.
func Widest() Set {
	switch {
	case cpu.X86.HasAVX512F:
		return AVX512
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA:
		return AVX2
	}
	return Plain
}

// Sets are those that this processor can run.
func Sets() []Set {
	switch Widest() {
	case AVX512:
		return []Set{Plain, AVX2, AVX512}
	case AVX2:
		return []Set{Plain, AVX2}
	}
	return []Set{Plain}
}

// rows is how many of n rows the next kernel takes.
func (s Set) rows(n int) int {
	for most := 8; most > 1; most /= 2 {
		if n >= most && (s == AVX512 || most < 8) {
			return most
		}
	}
	return 1
}

// columns is how many of the n columns from j on the next kernel takes: a chain is slow, so few rows take many columns.
func (s Set) columns(rows, j, n int) int {
	most := 32
	switch {
	case j%Lanes != 0:
		most = 16
	case s == AVX2:
		most = 64 / rows
	case s == AVX512 && rows <= 2:
		most = 128 / rows
	}
	for ; most > 16; most /= 2 {
		if n >= most {
			return most
		}
	}
	return 16
}

func (s Set) dots(c, x Rows, panel []float32, t Tile) {
	f := kernel256(t.Rows, t.Columns)
	if s == AVX512 {
		f = kernel512(t.Rows, t.Columns)
	}
	f(&c.Data[0], c.Step, &x.Data[0], x.Step, &panel[0], t.Next, t.Step, t.Inputs, t.First)
}

type dotsKernel = func(c *float32, ldc int, x *float32, ldx int, panel *float32, next, step, n int, first bool)

func kernel512(rows, columns int) dotsKernel {
	switch rows {
	case 8:
		return pick(columns, dots512x8x1, dots512x8x2, nil, nil)
	case 4:
		return pick(columns, dots512x4x1, dots512x4x2, nil, nil)
	case 2:
		return pick(columns, dots512x2x1, dots512x2x2, dots512x2x4, nil)
	}
	return pick(columns, dots512x1x1, dots512x1x2, dots512x1x4, dots512x1x8)
}

func kernel256(rows, columns int) dotsKernel {
	switch rows {
	case 4:
		return dots256x4x2
	case 2:
		return pick(columns, dots256x2x2, dots256x2x4, nil, nil)
	}
	return pick(columns, dots256x1x2, dots256x1x4, dots256x1x8, nil)
}

func pick(columns int, one, two, four, eight dotsKernel) dotsKernel {
	switch columns {
	case 128:
		return eight
	case 64:
		return four
	case 32:
		return two
	}
	return one
}

// transpose32 sets element j of row i of dst to float32 i of row j for 16 rows of src.
func (s Set) transpose32(dst Rows, src stored) {
	if s != AVX512 {
		if s != AVX2 || !inBlocks(transpose256x32, dst, src, 4) {
			columns32(dst, src)
		}
		return
	}
	_, _ = dst.Data[((src.n+15)&^15-1)*dst.Step+half-1], src.data[(half-1)*src.stride+4*src.n-1]
	transpose512x32(&dst.Data[0], dst.Step, &src.data[0], src.stride, src.n)
}

// transpose16 is transpose32 for bf16.
func (s Set) transpose16(dst Rows, src stored) {
	if s != AVX512 {
		if s != AVX2 || !inBlocks(transpose256x16, dst, src, 2) {
			columns16(dst, src)
		}
		return
	}
	_, _ = dst.Data[((src.n+15)&^15-1)*dst.Step+half-1], src.data[(half-1)*src.stride+2*src.n-1]
	if src.n <= half && src.n%2 == 0 && src.stride < 1<<20 {
		gather512x16(&dst.Data[0], dst.Step, &src.data[0], src.stride, src.n)
		return
	}
	transpose512x16(&dst.Data[0], dst.Step, &src.data[0], src.stride, src.n)
}

type transposeKernel = func(dst *float32, step int, src *byte, stride, n int)

// inBlocks runs a kernel that knows whole blocks of 16 bytes, if there is one. What is left is done once more with what stands
// before it.
func inBlocks(f transposeKernel, dst Rows, src stored, size int) bool {
	block := 16 / size
	if src.n < block {
		return false
	}
	_, _ = dst.Data[(src.n-1)*dst.Step+half-1], src.data[(half-1)*src.stride+size*src.n-1]
	f(&dst.Data[0], dst.Step, &src.data[0], src.stride, src.n/block*block)
	if src.n%block != 0 {
		f(&dst.Data[(src.n-block)*dst.Step], dst.Step, &src.data[(src.n-block)*size], src.stride, block)
	}
	return true
}

// near brings bytes near that will be read soon.
func (s Set) near(data []byte) {
	if len(data) > 0 {
		near(&data[0], (len(data)+63)/64)
	}
}

// widenRows widens the first 16 of n rows of `across` bf16, if this set can.
func (s Set) widenRows(dst Rows, data []byte, across, n int) bool {
	if s == Plain || n == 0 {
		return false
	}
	_, _ = dst.Data[(n-1)*dst.Step+half-1], data[2*(across*(n-1)+half)-1]
	if s == AVX512 {
		widenRows512(&dst.Data[0], dst.Step, &data[0], 2*across, n)
	} else {
		widenRows256(&dst.Data[0], dst.Step, &data[0], 2*across, n)
	}
	return true
}

// unpack decodes words of codes into 16 columns of a panel.
func (s Set) unpack(panel []float32, w codes) {
	f := unpacking(s == AVX512, w.bits)
	f(&panel[0], &w.words.Data[0], w.words.Step, &w.scales[0], &w.biases[0], w.groups, w.periods)
}

type unpackKernel = func(panel, words *float32, step int, scales, biases *float32, groups, periods int)

func unpacking(wide bool, bits int) unpackKernel {
	if wide {
		switch bits {
		case 2:
			return unpack512x2
		case 3:
			return unpack512x3
		case 4:
			return unpack512x4
		case 6:
			return unpack512x6
		}
		return unpack512x8
	}
	switch bits {
	case 2:
		return unpack256x2
	case 3:
		return unpack256x3
	case 4:
		return unpack256x4
	case 6:
		return unpack256x6
	}
	return unpack256x8
}

type fewFunc = func(c *float32, ldc int, x *float32, ldx int, words *float32, next int, sides *float32, nextSides, groups, periods int, ahead *byte, stride int, first bool)

type fewTilesFunc = func(c *float32, ldc int, x *float32, ldx int, words *float32, next int, scales, biases *byte, nextSides, groups, periods int, ahead *byte)

// few multiplies some rows with 16, 32 or 64 outputs.
func (s Set) few(halves, rows int, k fewCall) {
	if k.inputs > 0 {
		f := s.fewUpperKernels(rows)[halves/2]
		f(&k.c.Data[0], k.c.Step, &k.x.Data[0], k.x.Step, &k.words.Data[0], k.words.Step, k.inputs, &k.ahead.data[0])
		return
	}
	if k.scales != nil {
		f := fewTilesKernels(k.bits, rows)[halves/2]
		f(&k.c.Data[0], k.c.Step, &k.x.Data[0], k.x.Step, &k.words.Data[0], k.words.Step, &k.scales[0], &k.biases[0], k.sides.Step, k.groups, k.periods,
			&k.ahead.data[0])
		return
	}
	f := fewKernels(k.bits, rows)[halves/2]
	f(&k.c.Data[0], k.c.Step, &k.x.Data[0], k.x.Step, &k.words.Data[0], k.words.Step, &k.sides.Data[0], k.sides.Step, k.groups, k.periods,
		&k.ahead.data[0], k.ahead.stride, k.first)
}

// fewKernels are those for 16, 32 and 64 outputs.
func fewKernels(bits, rows int) [3]fewFunc {
	switch {
	case bits == 4 && rows == 1:
		return [3]fewFunc{few512x4x1x1, few512x4x1x2, few512x4x1x4}
	case bits == 4 && rows == 2:
		return [3]fewFunc{few512x4x2x1, few512x4x2x2, few512x4x2x4}
	case bits == 4:
		return [3]fewFunc{few512x4x4x1, few512x4x4x2, few512x4x4x4}
	case bits == 6 && rows == 1:
		return [3]fewFunc{few512x6x1x1, few512x6x1x2, few512x6x1x4}
	case bits == 6 && rows == 2:
		return [3]fewFunc{few512x6x2x1, few512x6x2x2, few512x6x2x4}
	case bits == 6:
		return [3]fewFunc{few512x6x4x1, few512x6x4x2, few512x6x4x4}
	case rows == 1:
		return [3]fewFunc{few512x8x1x1, few512x8x1x2, few512x8x1x4}
	case rows == 2:
		return [3]fewFunc{few512x8x2x1, few512x8x2x2, few512x8x2x4}
	}
	return [3]fewFunc{few512x8x4x1, few512x8x4x2, few512x8x4x4}
}

// fewTilesKernels are those for 16, 32 and 64 outputs of tiles with sides in bf16.
func fewTilesKernels(bits, rows int) [3]fewTilesFunc {
	switch {
	case bits == 4 && rows == 1:
		return [3]fewTilesFunc{fewTiles512x4x1x1, fewTiles512x4x1x2, fewTiles512x4x1x4}
	case bits == 4 && rows == 2:
		return [3]fewTilesFunc{fewTiles512x4x2x1, fewTiles512x4x2x2, fewTiles512x4x2x4}
	case bits == 4:
		return [3]fewTilesFunc{fewTiles512x4x4x1, fewTiles512x4x4x2, fewTiles512x4x4x4}
	case bits == 6 && rows == 1:
		return [3]fewTilesFunc{fewTiles512x6x1x1, fewTiles512x6x1x2, fewTiles512x6x1x4}
	case bits == 6 && rows == 2:
		return [3]fewTilesFunc{fewTiles512x6x2x1, fewTiles512x6x2x2, fewTiles512x6x2x4}
	case bits == 6:
		return [3]fewTilesFunc{fewTiles512x6x4x1, fewTiles512x6x4x2, fewTiles512x6x4x4}
	case rows == 1:
		return [3]fewTilesFunc{fewTiles512x8x1x1, fewTiles512x8x1x2, fewTiles512x8x1x4}
	case rows == 2:
		return [3]fewTilesFunc{fewTiles512x8x2x1, fewTiles512x8x2x2, fewTiles512x8x2x4}
	}
	return [3]fewTilesFunc{fewTiles512x8x4x1, fewTiles512x8x4x2, fewTiles512x8x4x4}
}

type tilesFunc = func(c *float32, ldc int, x *float32, ldx int, words, scales, biases *byte, groups, periods, tiles int)

// fewTiles multiplies some rows with tiles of 64 outputs.
func (s Set) fewTiles(rows int, c, x Rows, k tilesCall) {
	f := s.tilesKernels(rows)[k.bits/2-2]
	f(&c.Data[0], c.Step, &x.Data[0], x.Step, &k.codes[0], &k.scales[0], &k.biases[0], k.groups, k.periods, k.tiles)
}

// tilesKernels are those for 4, 6 and 8 bits.
func (s Set) tilesKernels(rows int) [3]tilesFunc {
	switch {
	case s == AVX2:
		return [...][3]tilesFunc{
			1: {tiles256x4x1, tiles256x6x1, tiles256x8x1},
			2: {tiles256x4x2, tiles256x6x2, tiles256x8x2},
			4: {tiles256x4x4, tiles256x6x4, tiles256x8x4},
		}[rows]
	case rows == 1:
		return [3]tilesFunc{tiles512x4x1, tiles512x6x1, tiles512x8x1}
	case rows == 2:
		return [3]tilesFunc{tiles512x4x2, tiles512x6x2, tiles512x8x2}
	}
	return [3]tilesFunc{tiles512x4x4, tiles512x6x4, tiles512x8x4}
}

type fewUpperFunc = func(c *float32, ldc int, x *float32, ldx int, words *float32, next, inputs int, ahead *byte)

// fewUpperKernels are those for 16, 32 and 64 outputs in bf16.
func (s Set) fewUpperKernels(rows int) [3]fewUpperFunc {
	switch {
	case s == AVX2:
		return [...][3]fewUpperFunc{1: {fewUpper256x1x1, fewUpper256x1x2, fewUpper256x1x4}, 2: {fewUpper256x2x1, fewUpper256x2x2}, 4: {fewUpper256x4x1}}[rows]
	case rows == 1:
		return [3]fewUpperFunc{fewUpper512x1x1, fewUpper512x1x2, fewUpper512x1x4}
	case rows == 2:
		return [3]fewUpperFunc{fewUpper512x2x1, fewUpper512x2x2, fewUpper512x2x4}
	}
	return [3]fewUpperFunc{fewUpper512x4x1, fewUpper512x4x2, fewUpper512x4x4}
}

// transposeRows transposes 16 rows of n floats, if this set can.
func (s Set) transposeRows(dst, src Rows, rows, n int) bool {
	if s == AVX2 && rows >= half {
		return inBlocks(transpose256x32, dst, stored{bytesOf(src.Data), 4 * src.Step, n}, 4)
	}
	if s != AVX512 || rows < half || n == 0 {
		return false
	}
	_, _ = dst.Data[((n+15)&^15-1)*dst.Step+half-1], src.Data[(half-1)*src.Step+n-1]
	transpose512x32(&dst.Data[0], dst.Step, (*byte)(unsafe.Pointer(&src.Data[0])), 4*src.Step, n)
	return true
}

// transposeListed transposes the first 16 rows of a list.
func (s Set) transposeListed(dst Rows, src Listed, list []int32, n int) {
	data, stride := (*byte)(unsafe.Pointer(&src.Data[0])), 4*src.Step
	if s == AVX512 {
		transposeListed512(&dst.Data[0], dst.Step, data, stride, n, &list[0])
		return
	}
	transposeListed256(&dst.Data[0], dst.Step, data, stride, n, &list[0])
	transposeListed256(&dst.Data[half/2], dst.Step, data, stride, n, &list[half/2])
}

func (s Set) dotsListed(c, x Rows, values Listed, t Tile) {
	f := s.listedKernels(t.Rows)[t.Columns/half/2]
	f(&c.Data[0], c.Step, &x.Data[0], x.Step, &values.Data[0], values.Step, &values.List[0], t.Inputs, t.First)
}

type listedKernel = func(c *float32, ldc int, x *float32, ldx int, values *float32, stride int, list *int32, n int, first bool)

// listedKernels are those for 16, 32 and 64 columns.
func (s Set) listedKernels(rows int) [3]listedKernel {
	switch {
	case s == AVX2:
		return [...][3]listedKernel{1: {listed256x1x2, listed256x1x4, listed256x1x8}, 2: {listed256x2x2, listed256x2x4}, 4: {listed256x4x2}}[rows]
	case rows == 4:
		return [3]listedKernel{listed512x4x1, listed512x4x2, listed512x4x4}
	case rows == 2:
		return [3]listedKernel{listed512x2x1, listed512x2x2, listed512x2x4}
	}
	return [3]listedKernel{listed512x1x1, listed512x1x2, listed512x1x4}
}
