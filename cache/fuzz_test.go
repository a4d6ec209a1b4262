package cache_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

// seeds adds whole objects of a kind, and damaged ones, to a fuzz target.
func seeds(f *testing.F, kind string) {
	store, d, _ := stored(f)
	if _, _, err := putTokens(context.Background(), store, d.tokens); err != nil {
		f.Fatal(err)
	}
	for _, name := range store.Names() {
		if !strings.Contains(name, "/"+kind+"/") {
			continue
		}
		b, _ := store.Bytes(name)
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(bytes.Replace(b, []byte(":8"), []byte(":9223372036854775807"), 1))
		f.Add(bytes.Replace(b, []byte(`"shape":[2,3]`), []byte(`"shape":[2147483647,2147483647,2147483647]`), 1))
		f.Add(bytes.Replace(b, []byte(`"to":`), []byte(`"TO":`), 1))
		f.Add(bytes.Replace(b, []byte(`[]`), []byte(`null`), 1))
		for _, losses := range []string{`[{"region":"layers.0.k","l2":0.0055}]`, `[{"region":"x","l2":0}]`, `[]`} {
			end := bytes.LastIndexAny(b, "]}")
			if i := bytes.LastIndex(b, []byte(`,"sum":`)); i >= 0 {
				end = i - 1
			}
			f.Add(slices.Concat(b[:end+1], []byte(`,"losses":`+losses), b[end+1:]))
		}
	}
}

// Whatever the bytes, a decoder gives an error or a value of exactly those bytes.
func FuzzDecodeNode(f *testing.F) {
	seeds(f, "nodes")
	f.Fuzz(func(t *testing.T, b []byte) {
		b = reseal(b)
		n, err := cache.DecodeNode(b)
		if err != nil {
			if !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if again, err := n.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q became %q, %v", b, again, err)
		}
	})
}

// reseal gives changed bytes the checksum that belongs to them, or hardly any would get past it.
func reseal(b []byte) []byte {
	i := bytes.LastIndex(b, []byte(`,"sum":`))
	if i < 0 {
		return b
	}
	body := append(bytes.Clone(b[:i]), '}')
	return append(b[:i:i], `,"sum":"`+cache.Sum(body).String()+`"}`...)
}

// A manifest that decodes can be looked at in every way without a fault, whatever it claims.
func FuzzDecodeManifest(f *testing.F) {
	seeds(f, "manifests")
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := cache.DecodeManifest(b)
		if err != nil {
			if !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if again, err := m.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q became %q, %v", b, again, err)
		}
		if m.Bytes > 1<<20 {
			return
		}
		space := &cache.Space{Store: cachetest.NewMemory()}
		if _, err := space.Restore(context.Background(), m, "", nil, blank(m.Layout, m.Tokens)); err == nil && m.Bytes > 0 {
			t.Fatal("a state was restored from an empty store")
		}
		if _, err := space.Verify(context.Background(), m); err == nil && m.Bytes > 0 {
			t.Fatal("an empty store was verified")
		}
		if ids, err := space.Tokens(context.Background(), m); err == nil && m.TokensOnly() {
			t.Fatalf("an empty store has the ids %v", ids)
		}
	})
}

func FuzzDecodeHandle(f *testing.F) {
	seeds(f, "handles")
	f.Add([]byte(`{"version":1,"manifest":"` + strings.Repeat("0", 64) + `","model":"` + strings.Repeat("0", 64) + `","tokens":1,"tenant":"a","expires":"2026-11-30T12:00:00.5Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := cache.DecodeHandle(b)
		if err != nil {
			return
		}
		if again := h.Encode(); !bytes.Equal(again, b) {
			t.Fatalf("%q became %q", b, again)
		}
	})
}

func FuzzParseHandleName(f *testing.F) {
	f.Add(cache.HandleName(cache.Digest{}))
	f.Add("lh1-aaaaaaaa")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := cache.ParseHandleName(s)
		if err == nil && cache.HandleName(d) != strings.ToLower(strings.TrimSpace(s)) {
			t.Fatalf("%q was read as %s", s, cache.HandleName(d))
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("%q: the message has more than one line: %q", s, err)
		}
	})
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"a/b", "../a", "a//b", "tmp~/x", "a/."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if cache.CheckName(s) != nil {
			return
		}
		for i := range len(s) + 1 {
			if err := cache.CheckPrefix(s[:i]); err != nil {
				t.Fatalf("%q is a name, and its beginning %q no prefix: %v", s, s[:i], err)
			}
		}
		for element := range strings.SplitSeq(s, "/") {
			if element == "" || element == "." || element == ".." || strings.ContainsAny(element, "~\\\x00 ") {
				t.Fatalf("%q is a name", s)
			}
		}
	})
}

// Digests have one text.
func FuzzParseDigest(f *testing.F) {
	f.Add(strings.Repeat("0a", 32))
	f.Add(strings.Repeat("0A", 32))
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := cache.ParseDigest(s); err == nil && d.String() != s {
			t.Fatalf("%q was read as %s", s, d)
		}
	})
}

// A stored document is token ids of exactly its bytes, or damaged.
func FuzzDocument(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0x80})
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		store := cachetest.NewMemory()
		space := &cache.Space{Store: store}
		store.SetBytes("default/documents/"+cache.Sum(b).String(), b)
		tokens, err := space.Document(t.Context(), cache.Sum(b))
		if err != nil {
			if !errors.Is(err, cache.ErrCorrupt) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if d, err := space.PutDocument(t.Context(), tokens); err != nil || d != cache.Sum(b) {
			t.Fatalf("%x became %v, whose digest is %s, %v", b, tokens, d, err)
		}
	})
}
