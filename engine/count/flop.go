package count

import (
	"strings"
	"unsafe"

	"lector/engine/bench"
	"lector/engine/weights"
	"lector/metal/record"
	"lector/shaders"
)

// keyTile is how many keys a threadgroup of qsa_attend takes at a time.
const keyTile = 32

// attentionWork sums the operations of attention: a multiply-add is two, softmax is not counted.
type attentionWork struct{ computed, padded int64 }

// add counts a dispatch.
func (w *attentionWork) add(d record.Dispatch) {
	block := unsafe.Pointer(unsafe.SliceData(d.Bindings[shaders.Params].Block))
	switch {
	case d.Kernel == "qsa_score_blocks":
		w.score((*shaders.ScoreBlocksParams)(block))
	case strings.HasPrefix(d.Kernel, "qsa_attend_dense"):
		rows := shaders.DenseRows
		if !strings.Contains(d.Kernel, "_half_") {
			rows = shaders.GatherRows
		}
		w.dense((*shaders.AttendParams)(block), rows)
	case strings.HasPrefix(d.Kernel, "qsa_attend_gather"):
		w.gathered((*shaders.AttendParams)(block))
	}
}

func up(n, each int) int { return (n + each - 1) / each * each }

// score is every block for every row, in tiles.
func (w *attentionWork) score(p *shaders.ScoreBlocksParams) {
	rows, blocks, each := int(p.Rows), int(p.Blocks), int64(2*p.Heads*p.Dim)
	w.computed += int64(rows*blocks) * each
	w.padded += int64(up(rows, shaders.ScoreTile)*up(blocks, shaders.ScoreTile)) * each
}

// dense is tiles of pairs of a row and a query head, each tile against every key up to its last row's.
func (w *attentionWork) dense(p *shaders.AttendParams, tile int) {
	per, each := int(p.Hq/p.Hkv), int64(4*p.Hd)*int64(p.Hkv)
	for first := 0; first < int(p.Rows)*per; first += tile {
		n := min(tile, int(p.Rows)*per-first)
		keys := int(p.Pos+p.FirstRow) + (first+n-1)/per + 1
		w.computed += int64(n*keys) * each
		w.padded += int64(tile*up(keys, keyTile)) * each
	}
}

// gathered is, for every row, its query heads against the tokens that it sees.
func (w *attentionWork) gathered(p *shaders.AttendParams) {
	per, each := int(p.Hq/p.Hkv), int64(4*p.Hd)*int64(p.Hkv)
	for r := range int(p.Rows) {
		at := int(p.Pos+p.FirstRow) + r
		keys := at + 1
		if blocks := keys / int(p.Ratio); blocks > int(p.Budget) {
			keys -= (blocks - int(p.Budget)) * int(p.Ratio)
		}
		w.computed += int64(per*keys) * each
		w.padded += int64(up(per, shaders.GatherRows)*up(keys, keyTile)) * each
	}
}

// leastAttention is what the rows of a chunk need: scores and values of the tokens that they see, and scores of blocks
// where there are more than that. The draft head runs over the row before the chunk as well.
func leastAttention(c *weights.Config, position, rows int) int64 {
	total := int64(0)
	count := func(layers, from, to int) {
		for p := from; p < to; p++ {
			tokens, scored := bench.Visible(c, p)
			total += int64(layers) * (int64(4*c.Heads*c.HeadDim)*int64(tokens) + int64(2*c.IndexHeads*c.IndexDim)*int64(scored))
		}
	}
	layers := 0
	for _, kind := range c.Kinds {
		if kind == weights.Attention {
			layers++
		}
	}
	count(layers, position, position+rows)
	if c.MTPLayers > 0 {
		count(1, max(position-1, 0), position+rows)
	}
	return total
}
