package gpu

import (
	"math"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const densePick kernel[shaders.PickParams] = "dense_pick"

var _ ops.Picker = (*Backend)(nil)

// picks is what a Pick found, by pieces of a row. It lies in memory that the next one writes over.
type picks struct {
	b      *Backend
	turn   int // to tell a late use
	rows   int
	pieces int
	mem    *memory // values, then columns; nil after a failure
}

// Pick implements ops.Picker.
func (b *Backend) Pick(y ops.Tensor, n int) ops.Picks {
	fit(few(y.Rows) && n > 0 && n <= y.Cols, "Pick", y)
	e := b.begin()
	defer e.end()
	b.choices.picks++
	p := &picks{b: b, turn: b.choices.picks, rows: y.Rows, pieces: blocks(y.Cols, shaders.PickColumns)}
	p.mem = e.lasting(pickedPieces, 8*p.rows*p.pieces)
	if e.failed() || y.Rows == 0 {
		return p
	}
	dispatch(e, densePick, shaders.PickParams{Cols: uint32(y.Cols), Choices: uint32(n), Pieces: uint32(p.pieces)}, launch{
		buffers: []region{shaders.PickValue: p.mem.whole(), shaders.PickColumn: p.columns(), shaders.PickY: at(y)},
		groups:  metal.Size{X: p.pieces, Y: y.Rows, Z: 1}, threads: shaders.PickThreads,
	})
	return p
}

func (p *picks) columns() region { return p.mem.whole().plus(4 * p.rows * p.pieces) }

// Row implements ops.Picks.
func (p *picks) Row(r int) (column int, finite bool) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.turn != p.b.choices.picks || p.mem == nil || p.mem.buf == nil {
		panic("gpu: a pick is read after the next Pick, or after a failure")
	}
	values := floatsOf(p.mem.whole().plus(4 * r * p.pieces).view(4 * p.pieces))
	columns := intsOf(p.columns().plus(4 * r * p.pieces).view(4 * p.pieces))
	best := math.Inf(-1)
	for i, v := range values {
		if columns[i] >= shaders.PickBad {
			return 0, false
		}
		if float64(v) > best {
			best, column = float64(v), int(columns[i])
		}
	}
	return column, true
}
