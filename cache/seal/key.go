package seal

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	keyBytes  = 32
	idBytes   = 8
	keyPrefix = "lector-seal-1 "    // and the key in hex
	wrapped   = "lector-wrapped-1 " // the key's id, and what a Wrapper made of the key in base64
	maxRing   = 1 << 16             // bytes of a ring's text
)

// Key seals a tenant's objects. The zero Key is none.
type Key struct {
	id                          string
	secret                      []byte
	object, name, nameMAC, salt []byte // derived, one for each use
}

// NewKey makes a key of 32 secret bytes, which it copies.
func NewKey(secret []byte) (Key, error) {
	if len(secret) != keyBytes {
		return Key{}, fmt.Errorf("make seal key: %d bytes, not %d", len(secret), keyBytes)
	}
	k := Key{secret: append([]byte(nil), secret...)}
	var id []byte
	for _, use := range []struct {
		to   *[]byte
		info string
		n    int
	}{{&k.object, "object", keyBytes}, {&k.name, "name", keyBytes}, {&k.nameMAC, "name mac", keyBytes}, {&k.salt, "salt", keyBytes}, {&id, "id", idBytes}} {
		b, err := hkdf.Key(sha256.New, k.secret, nil, "lector seal 1 "+use.info, use.n)
		if err != nil {
			return Key{}, fmt.Errorf("make seal key: %w", err)
		}
		*use.to = b
	}
	k.id = hex.EncodeToString(id)
	return k, nil
}

// Generate makes a key from 32 random bytes of the source.
func Generate(random io.Reader) (Key, error) {
	secret := make([]byte, keyBytes)
	if _, err := io.ReadFull(random, secret); err != nil {
		return Key{}, fmt.Errorf("make seal key: %w", err)
	}
	return NewKey(secret)
}

// ID is the short name of a key, which says nothing of it.
func (k Key) ID() string { return k.id }

// String names the key and keeps it out of messages.
func (k Key) String() string { return "seal key " + k.id }

// GoString is String: a printed structure does not hold the key.
func (k Key) GoString() string { return k.String() }

// Line is the stored form of the key itself, without its line feed.
func (k Key) Line() string { return keyPrefix + hex.EncodeToString(k.secret) }

// Salt is the salt of a tenant whose objects the key seals: nobody can compute its names without the key, and no state
// that one key sealed leans on what another did. tenant is the tenant's own salt, nil without one.
func (k Key) Salt(tenant []byte) []byte {
	h := hmac.New(sha256.New, k.salt)
	h.Write([]byte(k.id))
	h.Write(tenant)
	return h.Sum(nil)
}

func isID(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == idBytes && strings.ToLower(s) == s
}

// Wrapper keeps keys at rest: a key management service, or a file that does the same. Both calls may go out over a network.
type Wrapper interface {
	// Wrap encrypts a key of 32 bytes.
	Wrap(ctx context.Context, key []byte) ([]byte, error)
	// Unwrap opens what Wrap made.
	Unwrap(ctx context.Context, wrapped []byte) ([]byte, error)
}

// WrappedLine is the stored form of a key that a wrapper keeps, without its line feed.
func WrappedLine(ctx context.Context, k Key, w Wrapper) (string, error) {
	b, err := w.Wrap(ctx, k.secret)
	if err != nil {
		return "", fmt.Errorf("wrap %v: %w", k, err)
	}
	return wrapped + k.id + " " + base64.StdEncoding.EncodeToString(b), nil
}

// ParseRing reads a ring: one key a line, the sealing one first; empty lines and those that begin with # are left out.
// w opens wrapped keys and may be nil. Errors name the line and never hold a key.
func ParseRing(ctx context.Context, text string, w Wrapper) ([]Key, error) {
	if len(text) > maxRing {
		return nil, fmt.Errorf("seal keys: more than %d bytes", maxRing)
	}
	var keys []Key
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := parseKey(ctx, line, w)
		if err != nil {
			return nil, fmt.Errorf("seal keys, line %d: %w", i+1, err)
		}
		if seen[k.id] {
			return nil, fmt.Errorf("seal keys, line %d: key %s is there twice", i+1, k.id)
		}
		seen[k.id] = true
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("seal keys: there is none")
	}
	return keys, nil
}

func parseKey(ctx context.Context, line string, w Wrapper) (Key, error) {
	if digits, ok := strings.CutPrefix(line, keyPrefix); ok {
		secret, err := hex.DecodeString(digits)
		if err != nil || len(secret) != keyBytes || strings.ToLower(digits) != digits {
			return Key{}, fmt.Errorf("not %s and %d hex digits", strings.TrimSpace(keyPrefix), 2*keyBytes)
		}
		return NewKey(secret)
	}
	rest, ok := strings.CutPrefix(line, wrapped)
	id, body, two := strings.Cut(rest, " ")
	b, err := base64.StdEncoding.Strict().DecodeString(body)
	if !ok || !two || err != nil || !isID(id) {
		return Key{}, fmt.Errorf("neither a line of %s nor one of %s", strings.TrimSpace(keyPrefix), strings.TrimSpace(wrapped))
	}
	if w == nil {
		return Key{}, fmt.Errorf("key %s is wrapped, and nothing was given that opens it", id)
	}
	secret, err := w.Unwrap(ctx, b)
	if err != nil {
		return Key{}, fmt.Errorf("open key %s: %w", id, err)
	}
	k, err := NewKey(secret)
	if err == nil && k.id != id {
		err = fmt.Errorf("key %s opens to the key %s: its line was changed", id, k.id)
	}
	return k, err
}
