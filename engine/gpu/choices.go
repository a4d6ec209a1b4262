package gpu

import (
	"unsafe"

	"lector/engine/ops"
)

var _ ops.Backend = (*Backend)(nil)

// choices is what SelectBlocks, Route and AllocSlots keep between operations.
type choices struct {
	blocks, routes int // so many were made: a choice is good until the next of its kind
	picks          int
	near           int // tokens of context that the dense form of attention serves; 0: denseTokens
	slots          []*slotMemory
}

// dense is how many tokens of context the dense form of attention serves.
func (c *choices) dense() int {
	if c.near > 0 {
		return c.near
	}
	return denseTokens
}

// intsOf views bytes as numbers; a device's buffers are aligned to its page.
func intsOf(data []byte) []int32 {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

// release gives the slots back; their store must be closed.
func (c *choices) release(b *Backend) {
	for len(c.slots) > 0 {
		c.slots[0].release(b)
	}
}

// ForceRoute is a Route that the host chose: k experts a row and their weights. Checks hold a run to the choices of
// another with it, so that what they measure is the arithmetic and not a choice that a small margin decides.
func (b *Backend) ForceRoute(experts []int32, weights []float32, k int) ops.Route {
	fit(k > 0 && len(experts)%k == 0 && len(weights) == len(experts), "ForceRoute")
	e := b.begin()
	defer e.end()
	e.sync() // pending work may still write to where routes lie
	t := e.newRoute(len(experts)/k, k)
	if !e.failed() {
		copy(intsOf(t.experts.view(4*len(experts))), experts)
		copy(floatsOf(t.weights.view(4*len(weights))), weights)
	}
	return t
}

// ForceBlocks is an Index that the host chose: the blocks of every row, ascending, min(budget, complete) of them.
func (b *Backend) ForceBlocks(rows [][]int32, pos, ratio, budget int) ops.Index {
	fit(pos >= 0 && ratio > 0 && budget >= 0, "ForceBlocks")
	e := b.begin()
	defer e.end()
	e.sync()
	x := e.newIndex(len(rows), pos, ratio, budget)
	if x.scored == x.rows || e.failed() {
		return x
	}
	list, mask := intsOf(x.list.buf.Bytes()), intsOf(x.mask.buf.Bytes())
	clear(mask)
	for r := x.scored; r < x.rows; r++ {
		fit(len(rows[r]) == budget, "ForceBlocks")
		copy(list[r*budget:], rows[r])
		for _, j := range rows[r] {
			if int(j/32) < x.words {
				mask[r*x.words+int(j/32)] |= 1 << (j % 32)
			}
		}
	}
	return x
}
