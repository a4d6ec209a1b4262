// Package sign says who vouches for a handle: Ed25519 signatures that lie beside it as signatures/<handle>/<key id>. It
// owns the signatures folder of a tenant.
//
// What it promises:
//
//  1. A signature covers the handle's digest, and so its manifest, model, tokens, tenant and expiry, and by digests every
//     byte of the state. Where things are stored is not covered.
//  2. A handle may have signatures of several keys, so that keys are changed one at a time: sign with the new one, hand
//     out the new public key, then take the old one off the list.
//  3. The same key gives the same bytes: signing again changes nothing.
//
// It refuses a key that is not exactly one line of its form. Functions may be called from any goroutine. Start reading at
// Sign and Verify.
package sign

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"lector/cache"
)

// ErrUnsigned says that no signature of a known key vouches for a handle.
var ErrUnsigned = errors.New("handle is not signed by a known key")

const (
	domain       = "lector signature 1\n"
	secretPrefix = "lector-secret-1 "
	publicPrefix = "lector-public-1 "
	idBytes      = 8
	bodyBytes    = 2*ed25519.SignatureSize + 1 // hex and a line feed
)

// Secret signs.
type Secret struct{ key ed25519.PrivateKey }

// Public verifies.
type Public struct{ key ed25519.PublicKey }

// Generate makes a key from 32 random bytes of the source.
func Generate(random io.Reader) (Secret, error) {
	_, key, err := ed25519.GenerateKey(random)
	return Secret{key}, err
}

// Line is the stored form of the secret key, without its line feed.
func (s Secret) Line() string { return secretPrefix + hex.EncodeToString(s.key.Seed()) }

// Public is the other half.
func (s Secret) Public() Public {
	return Public{ed25519.PublicKey(s.key[ed25519.SeedSize:])} // the key holds both halves
}

// Line is the form in which the public key is handed out, without its line feed.
func (p Public) Line() string { return publicPrefix + hex.EncodeToString(p.key) }

// ID is the short name of a key: the beginning of the digest of its public half.
func (p Public) ID() string {
	d := cache.Sum(append([]byte(publicPrefix), p.key...))
	return hex.EncodeToString(d[:idBytes])
}

// ParseSecret reads one line. The error never holds the key.
func ParseSecret(text string) (Secret, error) {
	seed, err := parse(text, secretPrefix, ed25519.SeedSize)
	if err != nil {
		return Secret{}, errors.New("signing key: not one line of " + strings.TrimSpace(secretPrefix) + " and 64 hex digits")
	}
	return Secret{ed25519.NewKeyFromSeed(seed)}, nil
}

// ParsePublics reads a list of keys, one a line; empty lines and those that begin with # are left out.
func ParsePublics(text string) ([]Public, error) {
	var keys []Public
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parse(line, publicPrefix, ed25519.PublicKeySize)
		if err != nil {
			return nil, fmt.Errorf("verification keys, line %d: not %s and 64 hex digits", i+1, strings.TrimSpace(publicPrefix))
		}
		keys = append(keys, Public{key})
	}
	if len(keys) == 0 {
		return nil, errors.New("verification keys: there is none")
	}
	return keys, nil
}

func parse(text, prefix string, size int) ([]byte, error) {
	digits, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), prefix)
	if !ok || len(digits) != 2*size || strings.ToLower(digits) != digits {
		return nil, errors.New("not a key")
	}
	return hex.DecodeString(digits)
}

// name is where a signature lies.
func name(s *cache.Space, handle cache.Digest, id string) string {
	return s.TenantName() + "/signatures/" + handle.String() + "/" + id
}

// message is what is signed.
func message(handle cache.Digest) []byte { return append([]byte(domain), handle[:]...) }

// Sign puts a signature beside a stored handle. Errors: those of cache.Space.Handle.
func Sign(ctx context.Context, s *cache.Space, handle cache.Digest, key Secret) error {
	if _, err := s.Handle(ctx, handle); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	body := hex.EncodeToString(ed25519.Sign(key.key, message(handle))) + "\n"
	err := s.Store.Put(ctx, name(s, handle, key.Public().ID()), strings.NewReader(body), bodyBytes, cache.Replace)
	if err != nil {
		return fmt.Errorf("sign handle %s: %w", cache.HandleName(handle), err)
	}
	return nil
}

// Verify looks for a signature of one of the keys, and returns the key that vouches. A signature that does not hold is as
// good as none, and the error says so. Errors: ErrUnsigned; those of reading.
func Verify(ctx context.Context, s *cache.Space, handle cache.Digest, keys []Public) (Public, error) {
	var bad []string
	for _, key := range keys {
		signature, err := read(ctx, s, name(s, handle, key.ID()))
		if errors.Is(err, cache.ErrNotFound) {
			continue
		}
		if err != nil && !errors.Is(err, cache.ErrCorrupt) {
			return Public{}, err
		}
		if err == nil && ed25519.Verify(key.key, message(handle), signature) {
			return key, nil
		}
		bad = append(bad, key.ID())
	}
	if len(bad) > 0 {
		return Public{}, fmt.Errorf("handle %s: %w: the signature of key %s is false", cache.HandleName(handle), ErrUnsigned, strings.Join(bad, ", "))
	}
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.ID()
	}
	slices.Sort(ids)
	return Public{}, fmt.Errorf("handle %s: %w: looked for %s", cache.HandleName(handle), ErrUnsigned, strings.Join(ids, ", "))
}

// read returns the bytes of a stored signature; what is no signature is cache.ErrCorrupt.
func read(ctx context.Context, s *cache.Space, name string) ([]byte, error) {
	r, err := s.Store.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, bodyBytes+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	signature, err := hex.DecodeString(strings.TrimSuffix(string(b), "\n"))
	if err != nil || string(b) != hex.EncodeToString(signature)+"\n" || len(signature) != ed25519.SignatureSize {
		return nil, fmt.Errorf("object %s is no signature: %w", name, cache.ErrCorrupt)
	}
	return signature, nil
}
