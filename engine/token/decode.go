package token

import (
	"strings"
	"unicode/utf8"

	"lector/engine"
)

// Decode returns the text of ids without special tokens; added tokens that are not special, such as <think>,
// are text. What is not UTF-8 becomes U+FFFD. Ids outside of the vocabulary are skipped.
func (t *Tokenizer) Decode(ids []engine.Token) string {
	return decodeAll(&decoder{t: t}, ids)
}

// DecodeSpecial is Decode with the names of special tokens written out.
func (t *Tokenizer) DecodeSpecial(ids []engine.Token) string {
	return decodeAll(&decoder{t: t, special: true}, ids)
}

// Decoder starts a stream of what Decode returns.
func (t *Tokenizer) Decoder() engine.Decoder { return &decoder{t: t} }

func decodeAll(d *decoder, ids []engine.Token) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(d.Add(id))
	}
	b.WriteString(d.Flush())
	return b.String()
}

// decoder holds back the start of a character until the rest of it arrives. A skipped token does not end a
// character: the bytes on both sides of it belong together, as in the reference.
type decoder struct {
	t       *Tokenizer
	special bool   // write special tokens out
	held    string // at most three bytes, the valid start of a character
}

// Add returns the text that is certain once id has been seen.
func (d *decoder) Add(id engine.Token) string {
	if d.t.special[id] && !d.special {
		return ""
	}
	text, rest := validPart(d.held + d.t.Piece(id))
	d.held = rest
	return text
}

// Flush returns U+FFFD for a character that was left incomplete, and starts anew.
func (d *decoder) Flush() string {
	if d.held == "" {
		return ""
	}
	d.held = ""
	return string(utf8.RuneError)
}

// validPart splits s before an incomplete character at its end, and replaces what is invalid: the longest
// valid start of a character at once, as the reference does, where Go would replace each byte.
func validPart(s string) (text, rest string) {
	if utf8.ValidString(s) {
		return s, ""
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			if n = startOfRune(s); n == len(s) && !utf8.FullRuneInString(s) {
				return b.String(), s
			}
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String(), ""
}

// startOfRune returns the length of the longest start of s that a valid character could start with, at least 1.
func startOfRune(s string) int {
	n := 1
	for n < len(s) && !utf8.FullRuneInString(s[:n]) && !utf8.FullRuneInString(s[:n+1]) {
		n++
	}
	return n
}
