package token

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"lector/engine"
)

// Tokenizer is a loaded tokenizer.json.
type Tokenizer struct {
	name    string
	digest  string
	pieces  []string // bytes by id; "" where the vocabulary has a hole
	bytes   [256]engine.Token
	merges  merges
	split   splitter
	nfc     bool
	words   words
	special map[engine.Token]bool // added tokens by id; true for those that decoding skips
	raw     matcher               // added tokens sought in the text as it is
	normal  matcher               // added tokens sought in the normalised text
	chat    chatTokens
}

var _ engine.Tokenizer = (*Tokenizer)(nil)

// Digest is the SHA-256 of the file's bytes, in hex.
func (t *Tokenizer) Digest() string { return t.digest }

// Vocabulary is the number of ids: one more than the largest, added tokens included.
func (t *Tokenizer) Vocabulary() int { return len(t.pieces) }

// Piece returns the bytes of an id, which may be part of a character only; "" outside of the vocabulary. A
// special token's are those of its name.
func (t *Tokenizer) Piece(id engine.Token) string {
	if id < 0 || int(id) >= len(t.pieces) {
		return ""
	}
	return t.pieces[id]
}

// Added returns the id of an added token, such as <|endoftext|>, by its exact content.
func (t *Tokenizer) Added(content string) (engine.Token, bool) {
	for _, m := range []matcher{t.raw, t.normal} {
		for _, a := range m.tokens {
			if a.content == content {
				return a.id, true
			}
		}
	}
	return engine.NoToken, false
}

// Encode returns the ids of plain text: what looks like an added token is spelled out. Text that is not UTF-8
// is refused with the offset of its first invalid byte; replacing it would change the text unseen.
func (t *Tokenizer) Encode(text string) ([]engine.Token, error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	return t.plain(capacityFor(text), t.normalise(text)), nil
}

// EncodeSpecial returns the ids of text in which added tokens are recognised, as the reference does with
// add_special_tokens off. Only for text whose author may write special tokens. Errors: as Encode.
func (t *Tokenizer) EncodeSpecial(text string) ([]engine.Token, error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	out := capacityFor(text)
	t.raw.cut(text, func(part string, added engine.Token) {
		if part == "" {
			out = append(out, added)
			return
		}
		t.normal.cut(t.normalise(part), func(part string, added engine.Token) {
			if part == "" {
				out = append(out, added)
				return
			}
			out = t.plain(out, part)
		})
	})
	return out, nil
}

func checkText(text string) error {
	if len(text) > math.MaxInt32 {
		return fmt.Errorf("encode text: %d bytes are more than the %d that one call takes", len(text), math.MaxInt32)
	}
	if utf8.ValidString(text) {
		return nil
	}
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") {
			return fmt.Errorf("encode text: byte 0x%02x at offset %d is not UTF-8", text[i], i)
		}
	}
	return nil
}

// capacityFor guesses: a token is about four bytes of prose.
func capacityFor(text string) []engine.Token { return make([]engine.Token, 0, len(text)/4+1) }

func (t *Tokenizer) normalise(text string) string {
	if !t.nfc {
		return text
	}
	return composeNFC(text)
}

// plain appends the ids of normalised text without added tokens.
func (t *Tokenizer) plain(out []engine.Token, text string) []engine.Token {
	for len(text) > 0 {
		n := t.split.next(text)
		out = t.piece(out, text[:n])
		text = text[n:]
	}
	return out
}

// piece appends the ids of one piece of the split.
func (t *Tokenizer) piece(out []engine.Token, piece string) []engine.Token {
	if len(piece) == 1 {
		return append(out, t.bytes[piece[0]])
	}
	out, known := t.words.append(out, piece)
	if known {
		return out
	}
	start := len(out)
	out = slices.Grow(out, len(piece))
	for i := range len(piece) {
		out = append(out, t.bytes[piece[i]])
	}
	ids := t.merges.apply(out[start:])
	t.words.learn(piece, ids)
	return out[:start+len(ids)]
}

// addedToken is an entry of the file's added_tokens.
type addedToken struct {
	content string
	id      engine.Token
}

// matcher finds added tokens in text: the leftmost, the longest where several start.
type matcher struct {
	tokens []addedToken // longest first
	starts [256]bool    // first bytes of the tokens
}

func newMatcher(tokens []addedToken) matcher {
	m := matcher{tokens: tokens}
	slices.SortStableFunc(m.tokens, func(a, b addedToken) int { return len(b.content) - len(a.content) })
	for _, a := range tokens {
		m.starts[a.content[0]] = true
	}
	return m
}

// cut calls yield for each part of text in order: with text between tokens, or with "" and an added token.
func (m *matcher) cut(text string, yield func(part string, added engine.Token)) {
	start := 0
	for i := 0; i < len(text); {
		a, ok := m.at(text[i:])
		if !ok {
			i++
			continue
		}
		if i > start {
			yield(text[start:i], engine.NoToken)
		}
		yield("", a.id)
		i += len(a.content)
		start = i
	}
	if start < len(text) {
		yield(text[start:], engine.NoToken)
	}
}

// at returns the longest token that text starts with.
func (m *matcher) at(text string) (addedToken, bool) {
	if m.starts[text[0]] {
		for _, a := range m.tokens {
			if strings.HasPrefix(text, a.content) {
				return a, true
			}
		}
	}
	return addedToken{}, false
}
