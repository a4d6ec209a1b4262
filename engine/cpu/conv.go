package cpu

import (
	"sync"

	"lector/engine/ops"
)

// Conv: causal depthwise convolution over x with the rows of tail before it; taps add up oldest first.
func (b *Backend) Conv(y, x, tail ops.Tensor, w []float32, dilation int, activate bool) {
	fit(ops.Same(y, x) && x.Cols > 0 && len(w) > 0 && len(w)%x.Cols == 0 && dilation > 0 && tail.Cols == x.Cols &&
		tail.Rows == (len(w)/x.Cols-1)*dilation && (y.Mem != x.Mem || y.Off+y.Rows*y.Cols <= x.Off || x.Off+x.Rows*x.Cols <= y.Off),
		"Conv", y, x, tail)
	c, taps := x.Cols, len(w)/x.Cols
	in, before, out := x.Floats(), tail.Floats(), y.Floats()
	row := func(r int) []float32 { // row r of tail followed by x, x starting at 0
		if r < 0 {
			return before[(tail.Rows+r)*c : (tail.Rows+r+1)*c]
		}
		return in[r*c : (r+1)*c]
	}
	side := b.taps.of(w, taps)
	b.parallel(x.Rows, grain(c*(taps+8)), func(_ *scratch, from, to int) {
		for r := from; r < to; r++ {
			to := out[r*c : (r+1)*c]
			clear(to)
			for j := range taps {
				b.vector.addProduct(to, side[j*c:(j+1)*c], row(r-(taps-1-j)*dilation))
			}
			if activate {
				b.vector.silu(to, 1)
			}
		}
	})
}

// tapTables keeps the weights of convolutions tap by tap. A table refers to the weights that it was made of, so that no
// others can come to stand at their address.
type tapTables struct {
	mu     sync.Mutex
	tables map[*float32]tapTable
}

type tapTable struct {
	of, byTap []float32
	taps      int
}

func (t *tapTables) of(w []float32, taps int) []float32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have, ok := t.tables[&w[0]]; ok && len(have.of) == len(w) && have.taps == taps {
		return have.byTap
	}
	if t.tables == nil {
		t.tables = make(map[*float32]tapTable)
	}
	table := tapTable{w, transposed(w, taps), taps}
	t.tables[&w[0]] = table
	return table.byTap
}

// transposed lays the weights [C, taps] out tap by tap, so that those of one tap stand side by side.
func transposed(w []float32, taps int) []float32 {
	c := len(w) / taps
	out := make([]float32, len(w))
	for i, v := range w {
		out[i%taps*c+i/taps] = v
	}
	return out
}

// ShiftTail: tail = its own rows followed by those of x, the last Rows of them.
func (b *Backend) ShiftTail(tail, x ops.Tensor) {
	fit(tail.Cols == x.Cols, "ShiftTail", tail, x)
	to, in := tail.Floats(), x.Floats()
	if len(in) >= len(to) {
		copy(to, in[len(in)-len(to):])
		return
	}
	copy(to, to[len(in):])
	copy(to[len(to)-len(in):], in)
}
