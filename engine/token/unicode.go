package token

import (
	"sort"
	"unicode/utf8"
)

// class is what the split patterns tell apart about a character.
type class = uint8

const (
	other   class = iota
	letter        // \p{L}
	mark          // \p{M}
	number        // \p{N}
	space         // \s without the two below
	newline       // \r and \n
)

// span gives the code points from lo to hi one value.
type span struct {
	lo, hi rune
	value  uint8
}

// find returns the value of r in spans sorted by code point, 0 outside of them.
func find(spans []span, r rune) uint8 {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].hi >= r })
	if i < len(spans) && spans[i].lo <= r {
		return spans[i].value
	}
	return 0
}

// asciiClasses saves the search for the characters that most text is made of.
var asciiClasses = func() (table [utf8.RuneSelf]class) {
	for r := range table {
		table[r] = find(classSpans, rune(r))
	}
	return table
}()

// classAt returns the class and the size in bytes of the first character of s, which is not empty.
func classAt(s string) (class, int) {
	if b := s[0]; b < utf8.RuneSelf {
		return asciiClasses[b], 1
	}
	r, size := utf8.DecodeRuneInString(s)
	return find(classSpans, r), size
}
