package worker

import "lector/cache"

// Cell is one grid cell of a document: the unit of storing.
type Cell struct {
	From, To int   // tokens [From, To)
	Keep     bool  // whether the recurrent state at To is kept to branch from
	Cuts     []int // where the chunks end that compute it; the last is To
}

// Plan says how tokens are read: cells end at the multiples of grid and at the end; a cell beyond maxChunk is
// computed in several chunks; of the cells, spread are kept, evenly, the last one always.
func Plan(tokens, grid, maxChunk, spread int) []Cell {
	ends := cache.Boundaries(tokens, grid)
	cells := make([]Cell, len(ends))
	from := 0
	for i, to := range ends {
		cells[i] = Cell{From: from, To: to, Keep: keeps(i, len(ends), spread), Cuts: cuts(from, to, grid, maxChunk)}
		from = to
	}
	return cells
}

// keeps marks spread of n cells: those whose end crosses the next of spread equal parts. No part of the document
// is without one, and fewer cells than spread are all kept.
func keeps(i, n, spread int) bool {
	return (i+1)*spread/n > i*spread/n
}

// cuts are the ends of the chunks for tokens [from, to): at every multiple of the grid, so that a state may be
// taken there, and wherever a chunk would be longer than maxChunk.
func cuts(from, to, grid, maxChunk int) []int {
	var out []int
	for from < to {
		end := min(to, (from/grid+1)*grid)
		if maxChunk > 0 {
			end = min(end, from+maxChunk)
		}
		out = append(out, end)
		from = end
	}
	return out
}
