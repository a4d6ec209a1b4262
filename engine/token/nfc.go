package token

import (
	"slices"
	"sync"

	"golang.org/x/text/unicode/norm"
)

// composeNFC returns the canonical composition of text as the reference knows it. The norm package alone would
// not do: it follows the Stream-Safe Text Format, which breaks a run of more than 30 marks with U+034F, and it
// knows characters that the reference's older tables do not reorder.
func composeNFC(text string) string {
	// Whatever norm calls normal is normal for the older tables too: they know fewer marks and pairs.
	if norm.NFC.IsNormalString(text) {
		return text
	}
	c := composer{out: make([]byte, 0, len(text)+len(text)/8), starter: noStarter, pairs: compositions()}
	for _, r := range text {
		c.add(r)
	}
	c.settle()
	c.flush()
	return string(c.out)
}

// noStarter stands where no starter precedes the marks.
const noStarter rune = -1

// composer holds the last starter and the marks after it until the next starter shows that they are complete.
type composer struct {
	out     []byte
	starter rune
	marks   []combining
	pairs   map[[2]rune]rune
}

// combining is a mark with the rank of its combining class.
type combining struct {
	r    rune
	rank uint8
}

// add decomposes r and takes its parts in turn.
func (c *composer) add(r rune) {
	switch {
	case r < 0xC0: // nothing below decomposes
		c.part(r)
	case r >= hangulS && r < hangulS+hangulSCount:
		s := r - hangulS
		c.part(hangulL + s/hangulNCount)
		c.part(hangulV + s%hangulNCount/hangulTCount)
		if t := s % hangulTCount; t > 0 {
			c.part(hangulT + t)
		}
	case find(decomposingSpans, r) != 0:
		for _, d := range norm.NFD.String(string(r)) {
			c.part(d)
		}
	default:
		c.part(r)
	}
}

// part takes a character that does not decompose. A starter composes with the one before it only when no mark
// is left between the two.
func (c *composer) part(r rune) {
	if rank := find(markSpans, r); rank > 0 {
		c.marks = append(c.marks, combining{r, rank})
		return
	}
	c.settle()
	if len(c.marks) == 0 {
		if p, ok := c.pair(c.starter, r); ok {
			c.starter = p
			return
		}
	}
	c.flush()
	c.starter = r
}

// settle orders the marks by combining class and composes what it can with the starter. A mark is blocked when
// one of its own class stays between it and the starter.
func (c *composer) settle() {
	slices.SortStableFunc(c.marks, func(a, b combining) int { return int(a.rank) - int(b.rank) })
	kept := c.marks[:0]
	for _, m := range c.marks {
		if n := len(kept); n == 0 || kept[n-1].rank < m.rank {
			if p, ok := c.pair(c.starter, m.r); ok {
				c.starter = p
				continue
			}
		}
		kept = append(kept, m)
	}
	c.marks = kept
}

// flush writes the starter and its marks out.
func (c *composer) flush() {
	if c.starter != noStarter {
		c.out = append(c.out, string(c.starter)...)
	}
	for _, m := range c.marks {
		c.out = append(c.out, string(m.r)...)
	}
	c.starter, c.marks = noStarter, c.marks[:0]
}

// Hangul syllables are composed by arithmetic (Unicode, chapter 3.12).
const (
	hangulS, hangulL, hangulV, hangulT = 0xAC00, 0x1100, 0x1161, 0x11A7

	hangulLCount, hangulVCount, hangulTCount = 19, 21, 28

	hangulNCount = hangulVCount * hangulTCount
	hangulSCount = hangulLCount * hangulNCount
)

// pair returns the primary composite of a and b.
func (c *composer) pair(a, b rune) (rune, bool) {
	switch {
	case a >= hangulL && a < hangulL+hangulLCount && b >= hangulV && b < hangulV+hangulVCount:
		return hangulS + ((a-hangulL)*hangulVCount+b-hangulV)*hangulTCount, true
	case a >= hangulS && a < hangulS+hangulSCount && (a-hangulS)%hangulTCount == 0 && b > hangulT && b < hangulT+hangulTCount:
		return a + b - hangulT, true
	}
	p, ok := c.pairs[[2]rune{a, b}]
	return p, ok
}

// compositions returns the primary composites by the pair they are made of. A composite's full decomposition
// ends in the second of the pair; what comes before composes to the first.
var compositions = sync.OnceValue(func() map[[2]rune]rune {
	pairs := make(map[[2]rune]rune, 1024)
	for _, s := range decomposingSpans {
		for r := s.lo; r <= s.hi; r++ {
			if norm.NFC.String(string(r)) != string(r) {
				continue // excluded from composition
			}
			parts := []rune(norm.NFD.String(string(r)))
			last := len(parts) - 1
			first := []rune(norm.NFC.String(string(parts[:last])))
			if len(first) == 1 {
				pairs[[2]rune{first[0], parts[last]}] = r
			}
		}
	}
	return pairs
})
