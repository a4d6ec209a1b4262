package gpu

import (
	"fmt"
	"strings"

	"lector/engine/ops"
)

// fit panics unless ok, naming the operation and the shapes it was given.
func fit(ok bool, op string, tensors ...ops.Tensor) {
	if ok {
		return
	}
	var s strings.Builder
	s.WriteString("gpu: " + op + ": shapes do not fit:")
	for _, t := range tensors {
		fmt.Fprintf(&s, " [%d, %d]", t.Rows, t.Cols)
	}
	panic(s.String())
}

// same says that all tensors have one shape.
func same(a ops.Tensor, others ...ops.Tensor) bool {
	for _, t := range others {
		if t.Rows != a.Rows || t.Cols != a.Cols {
			return false
		}
	}
	return true
}

// within says that the heads lie inside a row of x.
func within(x ops.Tensor, h ops.Heads) bool {
	return h.N >= 0 && h.From >= 0 && h.Dim > 0 && (h.N == 0 || h.From+(h.N-1)*h.Stride+h.Dim <= x.Cols)
}

// fitMatrix panics unless the stored bytes are those of the matrix that m describes.
func fitMatrix(op string, m *ops.Matrix) {
	n, ok := m.Out*m.In, true
	switch m.Format {
	case ops.F32:
		ok = len(m.Data) == 4*n
	case ops.BF16, ops.F16:
		ok = len(m.Data) == 2*n
	case ops.Affine:
		ok = fitAffine(m, n)
	default:
		ok = false
	}
	if !ok {
		panic(fmt.Sprintf("gpu: %s: matrix %q [%d, %d] of format %d, %d bits in groups of %d does not fit its %d + %d + %d bytes",
			op, m.Name, m.Out, m.In, m.Format, m.Bits, m.Group, len(m.Data), len(m.Scales), len(m.Biases)))
	}
}

func fitAffine(m *ops.Matrix, n int) bool {
	switch m.Bits {
	case 2, 3, 4, 6, 8:
	default:
		return false
	}
	if m.Group != 32 && m.Group != 64 && m.Group != 128 || m.In%m.Group != 0 {
		return false
	}
	side := n / m.Group * 2
	if m.Side == ops.F32 {
		side *= 2
	}
	return len(m.Data) == n/8*m.Bits && len(m.Scales) == side && len(m.Biases) == side
}
