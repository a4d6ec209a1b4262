package token

import (
	"math"

	"lector/engine"
)

// merge is what a pair of neighbouring pieces becomes; a lower rank goes first.
type merge struct {
	rank int32
	id   engine.Token
}

// noMerge ranks a pair that does not merge behind every one that does.
var noMerge = merge{rank: math.MaxInt32}

// pair is a key of the merges.
func pair(a, b engine.Token) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// merges is the whole of a trained BPE: which pairs become one, and in which order.
type merges map[uint64]merge

// at returns the merge of a and b, or noMerge.
func (m merges) at(a, b engine.Token) merge {
	if got, ok := m[pair(a, b)]; ok {
		return got
	}
	return noMerge
}

// shortPiece is the length in bytes from which the heap beats scanning the piece for its best pair.
const shortPiece = 96

// apply merges ids, one for each byte of a piece, and returns them in place.
func (m merges) apply(ids []engine.Token) []engine.Token {
	switch {
	case len(ids) < 2:
		return ids
	case len(ids) <= shortPiece:
		return m.scan(ids)
	}
	return m.heap(ids)
}

// scan merges the best pair, the leftmost among equals, until none is left. The merges of all pairs are kept
// beside the ids, so that a step looks up two of them only.
func (m merges) scan(ids []engine.Token) []engine.Token {
	var store [shortPiece]merge
	next := store[:len(ids)-1]
	for i := range next {
		next[i] = m.at(ids[i], ids[i+1])
	}
	for {
		best := -1
		rank := noMerge.rank
		for i, n := range next {
			if n.rank < rank {
				best, rank = i, n.rank
			}
		}
		if best < 0 {
			return ids
		}
		ids[best] = next[best].id
		ids = append(ids[:best+1], ids[best+2:]...)
		next = append(next[:best], next[best+1:]...)
		if best < len(next) {
			next[best] = m.at(ids[best], ids[best+1])
		}
		if best > 0 {
			next[best-1] = m.at(ids[best-1], ids[best])
		}
	}
}

// heap does what scan does in n log n steps: candidates wait in a heap, and one whose pair has changed since
// is dropped when it comes up. Merged pieces leave a gap that links step over.
func (m merges) heap(ids []engine.Token) []engine.Token {
	l := links{ids: ids, prev: make([]int32, len(ids)), next: make([]int32, len(ids))}
	for i := range ids {
		l.prev[i], l.next[i] = int32(i-1), int32(i+1)
	}
	var queue candidates
	for i := range ids {
		queue.offer(m, l, int32(i))
	}
	for len(queue) > 0 {
		c := queue.pop()
		if !l.holds(c) {
			continue
		}
		l.join(c.at, m.at(c.left, c.right).id)
		queue.offer(m, l, c.at)
		if p := l.prev[c.at]; p >= 0 {
			queue.offer(m, l, p)
		}
	}
	out := ids[:0]
	for i := int32(0); int(i) < len(l.next); i = l.next[i] {
		out = append(out, ids[i])
	}
	return out
}

// links is a piece as a list of ids, so that a merge need not move what follows.
type links struct {
	ids        []engine.Token
	prev, next []int32 // positions; -1 before the first, the length after the last
}

// holds reports whether the pair of c still stands where it was found.
func (l links) holds(c candidate) bool {
	n := l.next[c.at]
	return l.ids[c.at] == c.left && int(n) < len(l.ids) && l.ids[n] == c.right
}

// join puts id in place of the pair at i.
func (l links) join(i int32, id engine.Token) {
	gone := l.next[i]
	l.ids[i], l.ids[gone] = id, engine.NoToken
	l.next[i] = l.next[gone]
	if int(l.next[i]) < len(l.ids) {
		l.prev[l.next[i]] = i
	}
}

// candidate is a pair that merges, at the position of its left half.
type candidate struct {
	rank, at    int32
	left, right engine.Token
}

func (c candidate) less(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// candidates is a binary heap, the best first. container/heap would box every candidate.
type candidates []candidate

// offer adds the pair at i if it merges.
func (q *candidates) offer(m merges, l links, i int32) {
	n := l.next[i]
	if int(n) >= len(l.ids) {
		return
	}
	c := candidate{at: i, left: l.ids[i], right: l.ids[n]}
	if c.rank = m.at(c.left, c.right).rank; c.rank == noMerge.rank {
		return
	}
	h := append(*q, c)
	for k := len(h) - 1; k > 0; {
		parent := (k - 1) / 2
		if !h[k].less(h[parent]) {
			break
		}
		h[k], h[parent] = h[parent], h[k]
		k = parent
	}
	*q = h
}

// pop takes the best candidate out.
func (q *candidates) pop() candidate {
	h := *q
	best := h[0]
	h[0] = h[len(h)-1]
	h = h[:len(h)-1]
	for k := 0; ; {
		child := 2*k + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].less(h[child]) {
			child++
		}
		if !h[child].less(h[k]) {
			break
		}
		h[k], h[child] = h[child], h[k]
		k = child
	}
	*q = h
	return best
}
