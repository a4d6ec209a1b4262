package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Digest is a SHA-256. Its text form is 64 characters of lower-case hex and nothing else.
type Digest [sha256.Size]byte

// Key is the logical name of a state: what anyone can compute before doing the work.
type Key [sha256.Size]byte

// ModelID names everything of a model that a state depends on.
type ModelID [sha256.Size]byte

// ProducerID names a model computed in one numeric class on one grid.
type ProducerID [sha256.Size]byte

// Sum is the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads the text form and refuses anything else, capitals too.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	return d, d.UnmarshalText([]byte(s))
}

// ParseKey reads the text form of a key.
func ParseKey(s string) (Key, error) {
	var k Key
	return k, k.UnmarshalText([]byte(s))
}

// ParseModelID reads the text form of a model's id.
func ParseModelID(s string) (ModelID, error) {
	var m ModelID
	return m, m.UnmarshalText([]byte(s))
}

// String is the text form.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// String is the text form.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// String is the text form.
func (m ModelID) String() string { return hex.EncodeToString(m[:]) }

// String is the text form.
func (p ProducerID) String() string { return hex.EncodeToString(p[:]) }

// MarshalText writes the text form, so that JSON holds it.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// MarshalText writes the text form, so that JSON holds it.
func (k Key) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k[:]), nil }

// MarshalText writes the text form, so that JSON holds it.
func (m ModelID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, m[:]), nil }

// MarshalText writes the text form, so that JSON holds it.
func (p ProducerID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

// UnmarshalText reads the text form and refuses anything else.
func (d *Digest) UnmarshalText(b []byte) error { return parseHex(d[:], b, "digest") }

// UnmarshalText reads the text form and refuses anything else.
func (k *Key) UnmarshalText(b []byte) error { return parseHex(k[:], b, "key") }

// UnmarshalText reads the text form and refuses anything else.
func (m *ModelID) UnmarshalText(b []byte) error { return parseHex(m[:], b, "model id") }

// UnmarshalText reads the text form and refuses anything else.
func (p *ProducerID) UnmarshalText(b []byte) error { return parseHex(p[:], b, "producer id") }

// parseHex fills dst from text. One digest has one text, so that equal things have equal bytes everywhere.
func parseHex(dst, text []byte, what string) error {
	if !isDigestText(string(text)) {
		return fmt.Errorf("%s %.80q is not %d characters of lower-case hex", what, text, 2*len(dst))
	}
	if _, err := hex.Decode(dst, text); err != nil {
		return fmt.Errorf("%s %q: %w", what, text, err)
	}
	return nil
}

// isDigestText says whether s is the text form of a digest.
func isDigestText(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}
