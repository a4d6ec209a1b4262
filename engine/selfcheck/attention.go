package selfcheck

import (
	"fmt"

	"lector/engine/ops"
)

// index is the indexer of these checks.
func index() ops.Heads { return ops.Heads{N: 2, Stride: 32, Dim: 32} }

func blocks() []check {
	list := []check{{"MeanBlocks", "5 of 4 x 24", 1e-6, 1e-6, func(r *run) {
		y := r.blank(5, 24)
		r.MeanBlocks(y, r.put(r.normal(50*24, 1), 24), 2, 4)
		r.out(y)
	}}}
	for _, s := range []struct {
		name                     string
		rows, pos, ratio, budget int
		equal                    bool
	}{
		{"all visible", 1, 0, 4, 8, false}, {"from all to some", 40, 20, 4, 8, false}, {"a wide choice", 5, 9000, 4, 512, false},
		{"all equal", 6, 200, 4, 8, true}, {"none but the tail", 3, 90, 4, 0, false},
	} {
		list = append(list, check{"SelectBlocks", fmt.Sprintf("%d rows at %d, %s", s.rows, s.pos, s.name), exact, exact, func(r *run) {
			iq, bk := r.normal(s.rows*64, 1), r.normal((s.pos+s.rows)/s.ratio*32, 1)
			if s.equal {
				clear(iq)
			}
			chosen := r.SelectBlocks(r.put(iq, 64), index(), r.put(bk, 32), s.pos, s.ratio, s.budget)
			r.chosen(func() (rows [][]int32) {
				for row := range s.rows {
					rows = append(rows, append([]int32(nil), chosen.Blocks(row)...))
				}
				return rows
			})
		}})
	}
	return list
}

const (
	// farTokens is a context in which a GPU gathers the tokens that a row sees.
	farTokens = 8200
	// manyRows are more than a GPU takes for a token and its drafts.
	manyRows = 18
)

func attention() []check {
	var list []check
	add := func(d ops.AttentionDims, rows, pos int, f ops.RowFormat) {
		shape := fmt.Sprintf("%d rows at %d, %d of %d x %d%s", rows, pos, d.Hq, d.Hkv, d.Hd, []string{"", ", rows in f16", ", rows in q8"}[f])
		list = append(list, check{"StoreRows, Attend", shape, 5e-3, summed, func(r *run) { attend(r, d, rows, pos, f) }})
	}
	for _, hd := range []int{32, 40, 128, 256} {
		add(ops.AttentionDims{Hq: 6, Hkv: 2, Hd: hd}, 37, 30, ops.RowsF32)
		add(ops.AttentionDims{Hq: 3, Hkv: 1, Hd: hd}, 2, farTokens, ops.RowsF32)
		add(ops.AttentionDims{Hq: 3, Hkv: 1, Hd: hd}, manyRows, farTokens, ops.RowsF32)
	}
	for _, f := range []ops.RowFormat{ops.RowsF16, ops.RowsQ8} {
		add(ops.AttentionDims{Hq: 6, Hkv: 2, Hd: 64}, 9, 60, f)
		add(ops.AttentionDims{Hq: 3, Hkv: 1, Hd: 64}, 2, farTokens, f)
		add(ops.AttentionDims{Hq: 3, Hkv: 1, Hd: 64}, manyRows, farTokens, f)
	}
	add(ops.AttentionDims{Hq: 24, Hkv: 2, Hd: 256}, 5, 70, ops.RowsF32) // the released heads
	add(ops.AttentionDims{Hq: 1, Hkv: 1, Hd: 32}, 1, 0, ops.RowsF32)
	return list
}

// attend runs rows that see a few blocks of four tokens.
func attend(r *run, d ops.AttentionDims, rows, pos int, f ops.RowFormat) {
	const ratio, budget = 4, 8
	tokens, width := pos+rows, d.Hkv*d.Hd
	qg := r.put(r.normal(rows*2*d.Hq*d.Hd, 1), 2*d.Hq*d.Hd)
	k, v := r.cache(f, tokens, d), r.cache(f, tokens, d)
	r.StoreRows(k, 0, r.put(r.normal(tokens*width, 1), width))
	r.StoreRows(v, 0, r.put(r.normal(tokens*width, 1), width))
	chosen := r.SelectBlocks(r.put(r.normal(rows*64, 1), 64), index(), r.put(r.normal(max(tokens/ratio, 1)*32, 1), 32), pos, ratio, budget)
	o := r.blank(rows, d.Hq*d.Hd)
	r.Attend(o, qg, k, v, chosen, pos, ratio, d)
	r.out(o)
}

// cache allocates a cache for keys or values.
func (r *run) cache(f ops.RowFormat, rows int, d ops.AttentionDims) ops.Cache {
	return ops.NewCache(f, rows, d.Hkv, d.Hd, func(rows, cols int) ops.Tensor { return r.put(make([]float32, rows*cols), cols) })
}
