//go:build !amd64

package bfp

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// Sets are those that this processor can run.
func Sets() []Set { return []Set{Plain} }

func (s Set) split(to []byte, x []float32, order *[16]byte, group int) {
	splitPlain(to, x, order, group)
}

func (s Set) spread([]byte, fma.Rows, *ops.Matrix) { panic("no kernels") }

func (s Set) product(c fma.Rows, rows int, x *Packed, first int, w *Panel) {
	productPlain(c, rows, x, first, w)
}

func (s Set) few(int, fma.Rows, *Packed, int, *tiles) { panic("no kernels") }
