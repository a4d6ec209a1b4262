package gpu

import (
	"math"

	"lector/engine/ops"
	"lector/shaders"
)

const denseRope kernel[shaders.RopeParams] = "dense_rope"

// ropeTables keeps the last few tables of cosines and sines on the device: one chunk's layers ask for the same ones.
type ropeTables struct {
	tables [4]ropeTable
	next   int // to be replaced
}

type ropeTable struct {
	rope           ops.Rope
	pos, step, len int // rows [0, len) stand at pos + r*step
	mem            *memory
}

// table is a table whose first rows serve n rows from pos on. Angles are float64 on the host, rounded once as sine and
// cosine, so that positions past 2^24 radians lose nothing.
func (e *encoding) table(rope ops.Rope, pos, step, n int) region {
	t := &e.b.ropes
	for i := range t.tables {
		if k := &t.tables[i]; k.mem != nil && k.rope == rope && k.pos == pos && k.step == step && k.len >= n {
			return k.mem.whole()
		}
	}
	if e.failed() {
		return region{}
	}
	m, err := e.b.allocate(4 * n * rope.Rot)
	if err != nil {
		e.b.fail(err)
		return region{}
	}
	fillRope(m.floats[:n*rope.Rot], rope, pos, step)
	e.b.release(t.tables[t.next].mem)
	t.tables[t.next] = ropeTable{rope, pos, step, n, m}
	t.next = (t.next + 1) % len(t.tables)
	return m.whole()
}

// fillRope writes rows of Rot/2 cosines, then Rot/2 sines.
func fillRope(table []float32, rope ops.Rope, pos, step int) {
	half := rope.Rot / 2
	for i := range half {
		freq := math.Pow(rope.Theta, -2*float64(i)/float64(rope.Rot))
		for r := range len(table) / rope.Rot {
			sin, cos := math.Sincos(float64(pos+r*step) * freq)
			row := table[r*rope.Rot:]
			row[i], row[half+i] = float32(cos), float32(sin)
		}
	}
}

func (t *ropeTables) release(b *Backend) {
	for i := range t.tables {
		b.release(t.tables[i].mem)
	}
	*t = ropeTables{}
}

// Rope rotates the heads h of x in place; row r stands at position pos + r*step.
func (b *Backend) Rope(x ops.Tensor, h ops.Heads, rope ops.Rope, pos, step int) {
	fit(h.Within(x) && rope.Rot >= 0 && rope.Rot%2 == 0 && rope.Rot <= h.Dim && rope.Theta > 0, "Rope", x)
	if x.Rows == 0 || rope.Rot == 0 {
		return
	}
	e := b.begin()
	defer e.end()
	p := shaders.RopeParams{
		RowFloats: uint32(x.Cols), From: uint32(h.From), Stride: uint32(h.Stride), HalfRot: uint32(rope.Rot / 2), Heads: uint32(h.N),
	}
	dispatch(e, denseRope, p, launch{
		buffers: []region{shaders.RopeX: at(x), shaders.RopeTable: e.table(rope, pos, step, x.Rows)},
		groups:  rowsBy(x.Rows, h.N*rope.Rot/2, 64), threads: 64,
	})
}
