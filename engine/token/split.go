package token

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The two split patterns of the Qwen family. They differ in what a combining mark is: other in the first, part
// of a word in the second.
const (
	patternLetters = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternMarks   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitter cuts text into the pieces that a split pattern matches. The alternatives of the pattern are tried by
// hand: they are few, and Go's regexp has no lookahead.
type splitter struct {
	markIs class // the class that a mark counts as
}

// newSplitter knows the patterns of the Qwen family and refuses any other.
func newSplitter(pattern string) (splitter, error) {
	switch pattern {
	case patternLetters:
		return splitter{markIs: other}, nil
	case patternMarks:
		return splitter{markIs: letter}, nil
	}
	return splitter{}, fmt.Errorf("split pattern %q is not one of the two of the Qwen family", pattern)
}

// at is classAt with marks counted as the pattern does.
func (p splitter) at(s string) (class, int) {
	c, size := classAt(s)
	if c == mark {
		c = p.markIs
	}
	return c, size
}

// next returns the length of the first piece of s, which is not empty. Every text is cut without a gap.
func (p splitter) next(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	first, size := p.at(s)
	switch {
	case first == letter:
		return p.run(s, size, letter)
	case first == number:
		return size
	case first != newline && size < len(s): // [^\r\n\p{L}\p{N}]?\p{L}+
		if c, n := p.at(s[size:]); c == letter {
			return p.run(s, size+n, letter)
		}
	}
	if n := p.symbols(s); n > 0 {
		return n
	}
	return p.blank(s)
}

// run returns the end of the characters of class c that start at i.
func (p splitter) run(s string, i int, c class) int {
	for i < len(s) {
		got, size := p.at(s[i:])
		if got != c {
			break
		}
		i += size
	}
	return i
}

// symbols matches ` ?[^\s\p{L}\p{N}]+[\r\n]*`.
func (p splitter) symbols(s string) int {
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	end := p.run(s, start, other)
	if end == start {
		return 0
	}
	for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
		end++
	}
	return end
}

// blank matches `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line break of the run, or all of a run that ends
// the text, or all but the last character, which goes with what follows, or that one.
func (p splitter) blank(s string) int {
	end, last, line := 0, 0, 0
	for end < len(s) {
		c, size := p.at(s[end:])
		if c != space && c != newline {
			break
		}
		last = end
		end += size
		if c == newline {
			line = end
		}
	}
	switch {
	case line > 0:
		return line
	case end == len(s) || last == 0:
		return end
	}
	return last
}

// contraction matches `(?i:'s|'t|'re|'ve|'m|'ll|'d)`.
func contraction(s string) int {
	if s[0] != '\'' || len(s) == 1 {
		return 0
	}
	a, n := fold(s[1:])
	switch a {
	case 's', 't', 'm', 'd':
		return 1 + n
	case 'r', 'v', 'l':
		second := byte('e')
		if a == 'l' {
			second = 'l'
		}
		if len(s) > 2 && s[2]|0x20 == second {
			return 3
		}
	}
	return 0
}

// fold returns the first character of s in lower case, and its size. U+017F folds to s, as case-insensitive
// matching has it; no other character outside of ASCII folds to a letter of a contraction.
func fold(s string) (byte, int) {
	const longS = "\u017f"
	switch {
	case strings.HasPrefix(s, longS):
		return 's', len(longS)
	case s[0] < utf8.RuneSelf:
		return s[0] | 0x20, 1
	}
	return 0, 0
}
