//go:build !amd64

package cpu

import "lector/engine/cpu/fma"

// widest is plain: there are no kernels for this processor yet.
func widest() vector { return plain }

// The rest stands for the kernels of other processors; nothing calls it while widest is plain.

func (v vector) rows() int { return 1 }

func (v vector) dots(c *[blockRows * lanes]float32, xs *[blockRows]*float32, panel []float32, n, rows int) {
	panic("cpu: no kernels for this processor")
}

func (v vector) transpose(panel, rows []float32, n int) { panic("cpu: no kernels for this processor") }

func (v vector) unpack4(dst []float32, codes []byte, scale, bias float32) int { return 0 }

func (v vector) nibbles() bool { return false }

func (v vector) nibbleDots(c *[fewRows * nibbleLanes]float32, xs *[fewRows]*float32, w *nibbleRows, rows int) {
	panic("cpu: no kernels for this processor")
}

func (v vector) widen(dst []float32, data []byte) int { return 0 }

func (v vector) sigmoidWide(x []float32, scale, gain float32) int     { return 0 }
func (v vector) siluWide(x []float32, scale float32) int              { return 0 }
func (v vector) swiGLUWide(y, gate, up []float32) int                 { return 0 }
func (v vector) expBelowWide(x []float32, top float32) int            { return 0 }
func (v vector) addScaledWide(y, x []float32, w float32) int          { return 0 }
func (v vector) addProductWide(y, u, z []float32) int                 { return 0 }
func (v vector) normScaleWide(y, x, scale []float32, r float32) int   { return 0 }
func (v vector) decayColumns(s, from, t, k []float32, g float32) bool { return false }
func (v vector) updateColumns(s, o, delta, k, q []float32) bool       { return false }

func (v vector) softmaxWide(x []float32, scale, top float32, l *lanes16) int { return 0 }
func (v vector) dotsWide(x, y []float32, l *lanes16) int                     { return 0 }
func (v vector) largestWide(x []float32, top *[16]float32) int               { return 0 }

func (v vector) sumPositivesWide(y []float32, x fma.Rows, heads int, scale float32) int { return 0 }

func (v vector) scoreBlocks16(scores []float32, qs [][]float32, keys []float32, tokens []int32, stride int) int {
	return 0
}

func (v vector) widenHalves(dst []float32, halves []uint16) int { return 0 }

func (v vector) widenCodes(dst []float32, codes []int8, scales []uint16) int { return 0 }

func (v vector) addColumns(out, weights, values []float32, tokens []int32, stride int) int { return 0 }

func (v vector) sumColumns(out, weights, values []float32, tokens []int32, stride int) int { return 0 }

func (v vector) mixWide(y []float32, u, z fma.Rows, streams int, share float32) int { return 0 }
