package cpu

import (
	"sync"

	"lector/engine/ops"
)

// ropeTables keeps the inverse frequencies of every rope that was asked for.
type ropeTables struct {
	mu     sync.Mutex
	tables map[ops.Rope][]float64
}

// of returns theta^(-2i/rot) for i in [0, rot/2).
func (t *ropeTables) of(r ops.Rope) []float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if table, ok := t.tables[r]; ok {
		return table
	}
	if t.tables == nil {
		t.tables = make(map[ops.Rope][]float64)
	}
	table, log := make([]float64, r.Rot/2), log64(r.Theta)
	for i := range table {
		table[i] = exp64(float64(-log*float64(2*i)) / float64(r.Rot))
	}
	t.tables[r] = table
	return table
}

// Rope rotates the heads h of x in place; row r stands at position pos + r*step.
func (b *Backend) Rope(x ops.Tensor, h ops.Heads, rope ops.Rope, pos, step int) {
	fit(h.Within(x) && rope.Rot >= 0 && rope.Rot%2 == 0 && rope.Rot <= h.Dim && rope.Theta > 0, "Rope", x)
	freq, data := b.ropes.of(rope), x.Floats()
	half := len(freq)
	b.parallel(x.Rows, grain(4*h.N*rope.Rot+16*rope.Rot), func(s *scratch, from, to int) {
		table := floats(&s.values, rope.Rot)
		sin, cos := table[:half], table[half:]
		for r := from; r < to; r++ {
			for i, f := range freq {
				sn, cs := sincos(float64(float64(pos+r*step) * f))
				sin[i], cos[i] = float32(sn), float32(cs)
			}
			row := data[r*x.Cols : (r+1)*x.Cols]
			for i := range h.N {
				rotate(row[h.From+i*h.Stride:][:rope.Rot], sin, cos)
			}
		}
	})
}

// rotate turns every pair (i, i + half) of x by its angle.
func rotate(x, sin, cos []float32) {
	a, b := x[:len(sin)], x[len(sin):]
	for i := range a {
		u, v := a[i], b[i]
		a[i] = float32(u*cos[i]) - float32(v*sin[i])
		b[i] = float32(v*cos[i]) + float32(u*sin[i])
	}
}
