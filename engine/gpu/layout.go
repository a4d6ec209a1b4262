package gpu

import (
	"fmt"

	"lector/engine/ops"
	"lector/shaders"
)

var _ ops.Scratch = (*Backend)(nil)

// scratchPart is one allocation that operations work in.
type scratchPart string

// The parts of the layout. Those from routeExperts on are kept under their name from operation to operation.
const (
	partScratch  scratchPart = "scratch"     // of one operation, for the device alone
	partUploads  scratchPart = "uploads"     // what the host writes between two waits
	partRopes    scratchPart = "rope tables" // of a few sets of positions
	routeExperts scratchPart = "route experts"
	routeWeights scratchPart = "route weights"
	routeOfFew   scratchPart = "route of few" // experts, then weights, for the device
	pickedPieces scratchPart = "picked"       // largest logits, by pieces
	blockList    scratchPart = "qsa list"
	blockMask    scratchPart = "qsa mask"
)

// place is where a part goes: the host reads what a route chose, in every layer.
func (p scratchPart) place() place {
	if p == routeExperts || p == routeWeights || p == pickedPieces {
		return shared
	}
	return near
}

// layout visits everything that the operations of a chunk work in beside tensors, weights and slots: sizing and
// allocation both walk it.
func (b *Backend) layout(w ops.Work, visit func(part scratchPart, bytes int)) {
	visit(partScratch, max(scoreScratch(w), expertScratch(w.Experts, w.Rows), fewScratch(w)))
	visit(partUploads, uploadBytes(w))
	visit(partRopes, ropeSets*ropeBytes(w.Rows, w.Rot))
	visit(routeExperts, 4*w.Rows*w.Experts.TopK)
	visit(routeWeights, 4*w.Rows*w.Experts.TopK)
	visit(routeOfFew, routeOfFewBytes)
	visit(pickedPieces, 8*min(w.Rows, shaders.VectorRows)*blocks(w.Logits, shaders.PickColumns))
	visit(blockList, 4*w.Rows*max(w.Budget, 1))
	visit(blockMask, 4*w.Rows*b.maskWords(w))
}

// maskWords is how many words a row of the mask has: only the dense form reads it.
func (b *Backend) maskWords(w ops.Work) int {
	return blocks(min(w.Context, b.choices.dense()+w.Ratio)/max(w.Ratio, 1)+1, 32)
}

// scoreScratch is what SelectBlocks works in: the scores of some rows at a time.
func scoreScratch(w ops.Work) int {
	const tile = shaders.ScoreTile
	stride := blocks(w.Context/max(w.Ratio, 1), tile) * tile
	rows := blocks(w.Rows, tile) * tile
	return piece(min(4*rows*stride, max(scoreBytes, 4*tile*stride)))
}

// fewScratch is what attention and the gated read work in where the rows are few.
func fewScratch(w ops.Work) int {
	rows := min(w.Rows, shaders.VectorRows)
	attend := piece(attendScratch(w.Attn, rows, attendParts(w.Context, w.Ratio, w.Budget)))
	return max(attend, piece(4*rows*w.Wide)+piece(4*rows*w.Low))
}

// expertScratch is what RunExperts works in: activations of the pairs in flight, and outputs.
func expertScratch(d ops.ExpertDims, rows int) int {
	pairs := rows * (d.TopK + 1) // a row with the shared expert is one more
	if d.Stored {                // they come in any order and once, so that all outputs are held until their sums are made in slot order
		return 2*piece(4*min(pairs, rows*expertGroupMax)*d.Inner) + piece(4*pairs*d.Width)
	}
	return 2*piece(4*pairs*d.Inner) + piece(4*pairs*columnsAtOnce(pairs, d.Width))
}

// expertLists is what RunExperts uploads: rows and pairs, and for every active expert the places of its matrices and
// its tiles, at worst in a group of its own.
func expertLists(d ops.ExpertDims, choices, rows int) int {
	pairs := rows * d.TopK
	active := min(choices, pairs)
	tiles := pairs/shaders.TileRows + active
	ids := min(rows, shaders.VectorRows) * d.TopK // instead of tiles where the rows are few
	return 2*piece(4*pairs) + active*(expertParts+1)*pieceAlign + piece(max(3*4*tiles, 4*ids))
}

// smallUploads is how many vectors and lists of ids are uploaded between two waits, with some to spare.
const smallUploads = 16

// uploadBytes is what the host writes between two waits: the lists of a layer's experts, and what the layers around it
// need.
func uploadBytes(w ops.Work) int {
	return expertLists(w.Experts, w.Choices, w.Rows) + piece(w.Rows*w.Ngrams) + 2*pieceAlign +
		smallUploads*(piece(4*w.Vectors)+piece(4*w.Rows))
}

// piece is what an arena lends for n bytes.
func piece(n int) int { return blocks(max(n, 1), pieceAlign) * pieceAlign }

// PageBytes implements ops.Scratch.
func (b *Backend) PageBytes() int { return b.page }

// Room implements ops.Scratch.
func (b *Backend) Room() int64 {
	if recommended := b.device.Properties().WorkingSetBytes; recommended > 0 {
		return max(1, recommended-b.device.AllocatedBytes())
	}
	return 0
}

// WorkBytes implements ops.Scratch.
func (b *Backend) WorkBytes(w ops.Work) int {
	total := 0
	b.layout(w, func(_ scratchPart, bytes int) { total += blocks(max(bytes, 4), b.page) * b.page })
	return total
}

// Reserve implements ops.Scratch.
func (b *Backend) Reserve(w ops.Work) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var failed error
	b.layout(w, func(part scratchPart, bytes int) {
		if failed != nil {
			return
		}
		if err := b.reserve(part, bytes, w); err != nil {
			failed = fmt.Errorf("reserve %d bytes for %s: %w", bytes, part, err)
		}
	})
	return failed
}

func (b *Backend) reserve(part scratchPart, bytes int, w ops.Work) error {
	switch part {
	case partScratch:
		return b.scratch.reserve(b, bytes)
	case partUploads:
		return b.uploads.reserve(b, bytes)
	case partRopes:
		return b.ropes.reserve(b, ropeBytes(w.Rows, w.Rot))
	}
	if m := b.named[part]; m != nil && m.bytes >= int64(bytes) {
		return nil
	}
	b.release(b.named[part])
	delete(b.named, part)
	m, err := b.allocate(bytes, part.place())
	if err == nil {
		b.named[part] = m
	}
	return err
}

// reserve makes the arena one chunk of at least n bytes.
func (a *arena) reserve(b *Backend, n int) error {
	if len(a.chunks) == 1 && a.chunks[0].bytes >= int64(n) {
		return nil
	}
	a.release(b)
	m, err := b.allocate(n, a.place)
	if err == nil {
		a.chunks = []*memory{m}
	}
	return err
}
