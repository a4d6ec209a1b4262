package fma

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Widest is NEON, which every arm64 processor has that Go runs on; a system that says otherwise gets plain Go.
func Widest() Set {
	if cpu.ARM64.HasASIMD {
		return NEON
	}
	return Plain
}

// Sets are those that this processor can run.
func Sets() []Set {
	if Widest() == NEON {
		return []Set{Plain, NEON}
	}
	return []Set{Plain}
}

// rows is how many of n rows the next kernel takes.
func (s Set) rows(n int) int {
	if n >= 4 {
		return 4
	}
	return 1
}

// columns is how many of the n columns from j on the next kernel takes.
func (s Set) columns(rows, j, n int) int {
	if rows == 1 && n >= Lanes && j%Lanes == 0 {
		return Lanes
	}
	return half
}

func (s Set) dots(c, x Rows, panel []float32, t Tile) {
	w := panelOf{&panel[0], t.Step, t.Inputs}
	switch {
	case t.Rows == 4:
		dotsNEON4(c, x, w, t.First)
	case t.Columns == Lanes:
		dotsNEON1(&c.Data[0], &x.Data[0], w, t.First)
	default:
		dotsNEONHalf(&c.Data[0], &x.Data[0], w, t.First)
	}
}

func (s Set) transpose32(dst Rows, src stored) { columns32(dst, src) }
func (s Set) transpose16(dst Rows, src stored) { columns16(dst, src) }

// transposeRows is left to Go.
func (s Set) transposeRows(dst, src Rows, rows, n int) bool { return false }

// near is left to the processor.
func (s Set) near(data []byte) {}

// widenRows is left to Go.
func (s Set) widenRows(dst Rows, data []byte, across, n int) bool { return false }

// unpack decodes words of codes into 16 columns of a panel: 4 bits in a kernel, others code by code.
func (s Set) unpack(panel []float32, w codes) {
	period, width := Period(w.bits), Period(w.bits)*w.bits/32
	var codes [32 * half]uint32
	for g := range w.groups {
		scales, biases := &w.scales[g*half], &w.biases[g*half]
		for i := 0; i < w.periods; {
			words := w.words.Data[(g*w.periods+i)*width*half:]
			to := panel[(g*w.periods+i)*period*Lanes:]
			if w.bits == 4 {
				nibblesNEON(&to[0], (*uint32)(unsafe.Pointer(&words[0])), w.periods, scales, biases)
				break
			}
			fields(codes[:period*half], words[:width*half], w.bits)
			affineNEON(&to[0], &codes[0], period, scales, biases)
			i++
		}
	}
}

// fields takes the codes [period, 16] out of their words [*, 16].
func fields(dst []uint32, words []float32, bits int) {
	mask := uint32(1)<<bits - 1
	for i := range len(dst) / half {
		at, off := bits*i/32*half, bits*i%32
		for j := range half {
			v := math.Float32bits(words[at+j]) >> off
			if off+bits > 32 {
				v |= math.Float32bits(words[at+half+j]) << (32 - off)
			}
			dst[i*half+j] = v & mask
		}
	}
}

func (s Set) few(halves, rows int, k fewCall) { panic("fma: no such kernels for this processor") }
func (s Set) fewTiles(rows int, c, x Rows, k tilesCall) {
	panic("fma: no such kernels for this processor")
}

func (s Set) transposeListed(dst Rows, src Listed, list []int32, n int) {
	panic("fma: no kernels for listed rows")
}
func (s Set) dotsListed(c, x Rows, values Listed, t Tile) { panic("fma: no kernels for listed rows") }
