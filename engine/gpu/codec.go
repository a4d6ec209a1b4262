package gpu

import (
	"lector/engine/ops"
	"lector/shaders"
)

const (
	storeHalf  kernel[shaders.StoreRowsParams]  = "codec_store_half"
	storeCodes kernel[shaders.StoreRowsParams]  = "codec_store_codes"
	roundState kernel[shaders.RoundStateParams] = "codec_round_state"
)

// StoreRows: rows [row, row+T) of the cache = x, rounded to its format.
func (b *Backend) StoreRows(c ops.Cache, row int, x ops.Tensor) {
	fit(c.Fits(row, x), "StoreRows", c.Data, x)
	if c.Format == ops.RowsF32 {
		b.CopyRows(c.Data, row, x, 0)
		return
	}
	e := b.begin()
	defer e.end()
	p := shaders.StoreRowsParams{Rows: uint32(x.Rows), Row: uint32(row), Heads: uint32(c.Heads), Dim: uint32(c.Dim)}
	if c.Format == ops.RowsF16 {
		dispatch(e, storeHalf, p, launch{
			buffers: []region{shaders.StoreX: at(x), shaders.StoreData: at(c.Data)},
			groups:  over(x.Rows*x.Cols, shaders.BlockThreads), threads: shaders.BlockThreads,
		})
		return
	}
	dispatch(e, storeCodes, p, launch{
		buffers: []region{shaders.StoreX: at(x), shaders.StoreData: at(c.Data), shaders.StoreScales: at(c.Scales), shaders.StoreLoss: at(c.Loss)},
		groups:  over(x.Rows, 1), threads: simdWidth,
	})
}

// RoundState: s = the nearest bfloat16 of each number, in place; loss gets what that took from each row.
func (b *Backend) RoundState(s, loss ops.Tensor) {
	fit(loss.Rows == s.Rows && loss.Cols == 2, "RoundState", s, loss)
	e := b.begin()
	defer e.end()
	dispatch(e, roundState, shaders.RoundStateParams{Cols: uint32(s.Cols)}, launch{
		buffers: []region{shaders.RoundS: at(s), shaders.RoundLoss: at(loss)},
		groups:  over(s.Rows, 1), threads: simdWidth,
	})
}
