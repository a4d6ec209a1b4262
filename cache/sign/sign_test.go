package sign_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/sign"
)

func key(t *testing.T) sign.Secret {
	t.Helper()
	k, err := sign.Generate(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func stored(t *testing.T, store cache.Store, first int) (*cache.Space, cache.Digest) {
	t.Helper()
	s := &cache.Space{Store: store}
	h, _, err := (&cachetest.Document{Space: s, Tokens: cachetest.Count(first, 20)}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, h
}

// Keys are changed without a day on which nothing verifies.
func TestRotation(t *testing.T) {
	s, h := stored(t, cachetest.NewMemory(), 1)
	before, after, other := key(t), key(t), key(t)
	if _, err := sign.Verify(t.Context(), s, h, []sign.Public{before.Public()}); !errors.Is(err, sign.ErrUnsigned) || !strings.Contains(err.Error(), before.Public().ID()) {
		t.Errorf("unsigned: %v", err)
	}
	for _, k := range []sign.Secret{before, after, after} {
		if err := sign.Sign(t.Context(), s, h, k); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range [][]sign.Public{{before.Public()}, {other.Public(), after.Public()}} {
		if k, err := sign.Verify(t.Context(), s, h, list); err != nil || k.ID() != list[len(list)-1].ID() {
			t.Errorf("Verify: %v, %v", k, err)
		}
	}
	if _, err := sign.Verify(t.Context(), s, h, []sign.Public{other.Public()}); !errors.Is(err, sign.ErrUnsigned) {
		t.Errorf("a stranger's key: %v", err)
	}
	if err := sign.Sign(t.Context(), s, cache.Sum(nil), after); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("signing an unknown handle: %v", err)
	}
}

// A signature is good for one handle, and for no other bytes than its own.
func TestFalseSignatures(t *testing.T) {
	store := cachetest.NewMemory()
	s, h := stored(t, store, 1)
	_, other := stored(t, store, 500)
	k := key(t)
	if err := sign.Sign(t.Context(), s, h, k); err != nil {
		t.Fatal(err)
	}
	at := func(d cache.Digest) string { return "default/signatures/" + d.String() + "/" + k.Public().ID() }
	good, _ := store.Bytes(at(h))
	keys := []sign.Public{k.Public()}
	refused := func(what string, d cache.Digest, b []byte) {
		t.Helper()
		store.SetBytes(at(d), b)
		if _, err := sign.Verify(t.Context(), s, d, keys); !errors.Is(err, sign.ErrUnsigned) || !strings.Contains(err.Error(), "false") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another handle's", other, good)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		refused("a byte changed", h, bad)
	}
	refused("cut", h, good[:len(good)-1])
	refused("longer", h, append(bytes.Clone(good), '\n'))
	refused("empty", h, nil)
}

func TestKeysRoundTrip(t *testing.T) {
	k := key(t)
	again, err := sign.ParseSecret(k.Line() + "\n")
	if err != nil || again.Public().Line() != k.Public().Line() {
		t.Errorf("secret: %v", err)
	}
	list, err := sign.ParsePublics("# ours\n\n" + k.Public().Line() + "\r\n" + key(t).Public().Line())
	if err != nil || len(list) != 2 || list[0].ID() != k.Public().ID() {
		t.Errorf("list: %v, %v", list, err)
	}
	for _, text := range []string{"", "x", k.Public().Line(), k.Line()[:40], k.Line() + "00", strings.ToUpper(k.Line()), k.Line() + "\n" + k.Line()} {
		if _, err := sign.ParseSecret(text); err == nil || len(text) > 60 && strings.Contains(err.Error(), k.Line()[20:]) {
			t.Errorf("ParseSecret(%q): %v", text, err)
		}
	}
	for _, text := range []string{"", "# none", k.Line(), k.Public().Line() + " x"} {
		if _, err := sign.ParsePublics(text); err == nil || strings.Contains(err.Error(), k.Line()[20:]) {
			t.Errorf("ParsePublics(%q): %v", text, err)
		}
	}
}

// What is read as a list of keys is written to the same list.
func FuzzParsePublics(f *testing.F) {
	f.Add("# a\nlector-public-1 " + strings.Repeat("ab", 32))
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := sign.ParsePublics(text)
		if err != nil {
			return
		}
		var lines []string
		for _, k := range keys {
			lines = append(lines, k.Line())
		}
		if again, err := sign.ParsePublics(strings.Join(lines, "\n")); err != nil || len(again) != len(keys) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// One secret has one text, and a message never holds it.
func FuzzParseSecret(f *testing.F) {
	f.Add("lector-secret-1 " + strings.Repeat("ab", 32) + "\n")
	f.Add("lector-secret-1 " + strings.Repeat("AB", 32))
	f.Add("lector-secret-1 " + strings.Repeat("ab", 31))
	f.Fuzz(func(t *testing.T, text string) {
		k, err := sign.ParseSecret(text)
		if err == nil && k.Line() != strings.TrimSuffix(text, "\n") {
			t.Fatalf("%q was read as %q", text, k.Line())
		}
		if err != nil && len(text) > 40 && strings.Contains(err.Error(), text[16:40]) {
			t.Fatalf("%v holds the key", err)
		}
	})
}

// No bytes but those that the key makes are its signature.
func FuzzVerify(f *testing.F) {
	k, err := sign.Generate(bytes.NewReader(bytes.Repeat([]byte{1}, 64)))
	if err != nil {
		f.Fatal(err)
	}
	store := cachetest.NewMemory()
	s := &cache.Space{Store: store}
	h, _, err := (&cachetest.Document{Space: s, Tokens: cachetest.Count(1, 20)}).Read(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if err := sign.Sign(f.Context(), s, h, k); err != nil {
		f.Fatal(err)
	}
	name := "default/signatures/" + h.String() + "/" + k.Public().ID()
	whole, _ := store.Bytes(name)
	f.Add(whole)
	f.Add(bytes.ToUpper(whole))
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		store := cachetest.NewMemory()
		store.SetBytes(name, b)
		_, err := sign.Verify(t.Context(), &cache.Space{Store: store}, h, []sign.Public{k.Public()})
		if (err == nil) != bytes.Equal(b, whole) || err != nil && !errors.Is(err, sign.ErrUnsigned) {
			t.Fatalf("%q: %v", b, err)
		}
	})
}
