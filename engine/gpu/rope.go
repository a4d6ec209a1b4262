package gpu

import (
	"fmt"
	"math"

	"lector/engine/ops"
	"lector/shaders"
)

const denseRope kernel[shaders.RopeParams] = "dense_rope"

// ropeSets is how many sets of positions are kept: a chunk's layers ask for the same ones, rows and pooled blocks of
// the trunk and of the draft head.
const ropeSets = 4

// ropeTables keeps the last few tables of cosines and sines on the device, side by side in one allocation.
type ropeTables struct {
	mem    *memory
	each   int // bytes of a table's place
	tables [ropeSets]ropeTable
	next   int // to be replaced
}

type ropeTable struct {
	rope           ops.Rope
	pos, step, len int  // rows [0, len) stand at pos + r*step
	pending        bool // work that is under way may read it
}

// ropeBytes is the place of one table for so many rows.
func ropeBytes(rows, rot int) int { return piece(4 * rows * rot) }

// reserve makes places of at least so many bytes.
func (t *ropeTables) reserve(b *Backend, each int) error {
	if t.mem != nil && t.each >= each {
		return nil
	}
	t.release(b)
	m, err := b.allocate(ropeSets*each, near)
	if err == nil {
		t.mem, t.each = m, each
	}
	return err
}

func (t *ropeTables) place(i int) region { return region{t.mem.buf, i * t.each} }

// table is a table whose first rows serve n rows from pos on. Angles are float64 on the host, rounded once as sine and
// cosine, so that positions past 2^24 radians lose nothing.
func (e *encoding) table(rope ops.Rope, pos, step, n int) region {
	t := &e.b.ropes
	if e.failed() {
		return region{}
	}
	if err := t.reserve(e.b, ropeBytes(n, rope.Rot)); err != nil {
		e.b.fail(err)
		return region{}
	}
	for i := range t.tables {
		if k := &t.tables[i]; k.rope == rope && k.pos == pos && k.step == step && k.len >= n {
			k.pending = true
			return t.place(i)
		}
	}
	i := t.next
	if t.tables[i].pending && !e.sync() { // never within a chunk, which asks for no more sets
		return region{}
	}
	angles := make([]float32, n*rope.Rot)
	fillRope(angles, rope, pos, step)
	if err := t.place(i).write(bytesOf(angles)); err != nil {
		e.b.fail(fmt.Errorf("write a table of angles: %w", err))
		return region{}
	}
	t.tables[i] = ropeTable{rope, pos, step, n, true}
	t.next = (i + 1) % ropeSets
	return t.place(i)
}

// landed says that no work is under way.
func (t *ropeTables) landed() {
	for i := range t.tables {
		t.tables[i].pending = false
	}
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
	b.release(t.mem)
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
