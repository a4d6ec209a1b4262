package ops

import (
	"fmt"
	"slices"
	"strings"
)

// Shapes checks for a backend that what an operation is given fits together. A misfit is a fault of the network's code, so
// it panics.
type Shapes struct {
	Backend string
	Groups  []int // the sizes of affine groups that its kernels know; nil for any multiple of eight
}

// Fit panics unless ok, naming the operation and the shapes it was given.
func (s Shapes) Fit(ok bool, op string, tensors ...Tensor) {
	if !ok {
		panic(s.misfit(op, tensors))
	}
}

func (s Shapes) misfit(op string, tensors []Tensor) string {
	var b strings.Builder
	b.WriteString(s.Backend + ": " + op + ": shapes do not fit:")
	for _, t := range tensors {
		fmt.Fprintf(&b, " [%d, %d]", t.Rows, t.Cols)
	}
	return b.String()
}

// FitMatrix panics unless the stored bytes are those of the matrix that m describes.
func (s Shapes) FitMatrix(op string, m *Matrix) {
	n, ok := m.Out*m.In, false
	switch m.Format {
	case F32:
		ok = len(m.Data) == 4*n
	case BF16, F16:
		ok = len(m.Data) == 2*n
	case Affine:
		ok = s.fitAffine(m, n)
	}
	if !ok {
		panic(fmt.Sprintf("%s: %s: matrix %q [%d, %d] of format %d, %d bits in groups of %d does not fit its %d + %d + %d bytes",
			s.Backend, op, m.Name, m.Out, m.In, m.Format, m.Bits, m.Group, len(m.Data), len(m.Scales), len(m.Biases)))
	}
}

func (s Shapes) fitAffine(m *Matrix, n int) bool {
	switch m.Bits {
	case 2, 3, 4, 6, 8:
	default:
		return false
	}
	if m.Group <= 0 || m.Group%8 != 0 || m.In%m.Group != 0 || s.Groups != nil && !slices.Contains(s.Groups, m.Group) {
		return false
	}
	side := n / m.Group * 2
	if m.Side == F32 {
		side *= 2
	}
	return len(m.Data) == n/8*m.Bits && len(m.Scales) == side && len(m.Biases) == side
}

// FitTable panics unless all shards have the same shape and hold the table's rows; it returns the rows of one.
func (s Shapes) FitTable(t *Table) int {
	rows := 0
	for i := range t.Shards {
		m := &t.Shards[i]
		s.Fit(m.In == t.Dim && m.Out == t.Shards[0].Out, "Gather "+m.Name)
		s.FitMatrix("Gather", m)
		rows += m.Out
	}
	s.Fit(rows == t.Rows && (rows > 0 || len(t.Shards) == 0), "Gather")
	if rows == 0 {
		return 1
	}
	return t.Shards[0].Out
}

// Same says that all tensors have one shape.
func Same(a Tensor, others ...Tensor) bool {
	for _, t := range others {
		if t.Rows != a.Rows || t.Cols != a.Cols {
			return false
		}
	}
	return true
}

// Within says that the heads lie inside a row of x.
func (h Heads) Within(x Tensor) bool {
	return h.N >= 0 && h.From >= 0 && h.Dim > 0 && (h.N == 0 || h.From+(h.N-1)*h.Stride+h.Dim <= x.Cols)
}
