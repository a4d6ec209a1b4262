package enginetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"lector/engine"
)

// The toy vocabulary: ToyEnd, then one id a byte, then the pieces, then one id a role. The last id has no token.
const (
	ToyEnd        engine.Token = 0
	toyBytes                   = 1
	toyPieces                  = toyBytes + 256
	ToyTokens                  = toyPieces + 43 + 3 // ids that have a token
	ToyVocabulary              = ToyTokens + 1
)

// pieceText holds tokens of several letters, so that a stop string can begin and end inside tokens.
const pieceText = "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi ri ro ic ne ea ing the and"

func pieces() []string { return strings.Fields(pieceText) }

func roles() []string { return []string{"system", "user", "assistant"} }

// legible says that an id reads well in generated text.
func legible(id engine.Token) bool {
	if id >= toyPieces && id < toyPieces+43 {
		return true
	}
	c := id - toyBytes
	return c >= 'a' && c <= 'z' || c == ' ' || c == '.' || id == ToyEnd
}

// ToyTokenizer is a byte tokenizer with a few longer pieces.
type ToyTokenizer struct{}

var _ engine.Tokenizer = ToyTokenizer{}

// Encode implements engine.Tokenizer: the longest piece that fits, else a byte.
func (ToyTokenizer) Encode(text string) ([]engine.Token, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("encode text: not valid UTF-8")
	}
	var out []engine.Token
	for len(text) > 0 {
		id, size := engine.Token(toyBytes)+engine.Token(text[0]), 1
		for i, p := range pieces() {
			if len(p) > size && strings.HasPrefix(text, p) {
				id, size = engine.Token(toyPieces+i), len(p)
			}
		}
		out, text = append(out, id), text[size:]
	}
	return out, nil
}

// Chat implements engine.Tokenizer: each turn is its role's id, its content and ToyEnd.
func (t ToyTokenizer) Chat(messages []engine.Message, thinking bool) ([]engine.Token, error) {
	var out []engine.Token
	role := func(name string) error {
		for i, r := range roles() {
			if r == name {
				out = append(out, engine.Token(toyPieces+43+i))
				return nil
			}
		}
		return fmt.Errorf("render chat: unknown role %q", name)
	}
	for _, m := range messages {
		if err := role(m.Role); err != nil {
			return nil, err
		}
		ids, err := t.Encode(m.Content)
		if err != nil {
			return nil, err
		}
		out = append(append(out, ids...), ToyEnd)
	}
	if err := role("assistant"); err != nil {
		return nil, err
	}
	if thinking {
		ids, err := t.Encode("think ")
		return append(out, ids...), err
	}
	return out, nil
}

// Digest implements engine.Tokenizer.
func (ToyTokenizer) Digest() string {
	d := sha256.Sum256([]byte("toy tokenizer\x00" + pieceText))
	return hex.EncodeToString(d[:])
}

// Decoder implements engine.Tokenizer.
func (ToyTokenizer) Decoder() engine.Decoder { return &decoder{} }

// decoder holds back the bytes of a character that is not complete.
type decoder struct{ held []byte }

// Add implements engine.Decoder; an id without text adds nothing.
func (d *decoder) Add(id engine.Token) string {
	switch {
	case id >= toyBytes && id < toyPieces:
		d.held = append(d.held, byte(id-toyBytes))
	case id >= toyPieces && id < toyPieces+43:
		d.held = append(d.held, pieces()[id-toyPieces]...)
	}
	var out strings.Builder
	for len(d.held) > 0 && utf8.FullRune(d.held) {
		r, n := utf8.DecodeRune(d.held)
		out.WriteRune(r)
		d.held = d.held[n:]
	}
	return out.String()
}

// Flush implements engine.Decoder.
func (d *decoder) Flush() string {
	out := strings.ToValidUTF8(string(d.held), string(utf8.RuneError))
	d.held = nil
	return out
}
