package archive_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"lector/cache"
	"lector/cache/archive"
	"lector/cache/branch"
	"lector/cache/cachetest"
)

// A snapshot that is stored anew under another salt is the one that a reading under that salt gives, to the handle.
func TestResalt(t *testing.T) {
	d, h := stored(t)
	salt := []byte("another")
	to := &cache.Space{Store: cachetest.NewMemory(), Tenant: "other"}
	c, err := archive.Resalt(t.Context(), d.Space, to, h, salt)
	if err != nil {
		t.Fatal(err)
	}
	read := &cachetest.Document{Space: &cache.Space{Store: cachetest.NewMemory(), Tenant: "other"}, Tokens: d.Tokens, Salt: salt}
	want, m, err := read.Read(t.Context())
	if err != nil || c.Handle != want || c.Handle == h || c.Tokens != len(d.Tokens) || c.Blobs != len(m.Pieces()) || c.Bytes != m.Bytes {
		t.Errorf("resalted to %s (%+v), read to %s, %v", cache.HandleName(c.Handle), c, cache.HandleName(want), err)
	}
	if err := cachetest.Check(t.Context(), to, c.Handle, d.Tokens); err != nil {
		t.Error(err)
	}
	again, err := archive.Resalt(t.Context(), d.Space, to, h, salt)
	if err != nil || again.Handle != c.Handle {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// A damaged snapshot is not stored anew.
func TestResaltRefusesDamage(t *testing.T) {
	d, h := stored(t)
	store := d.Space.Store.(*cachetest.Memory)
	handle, err := d.Space.Handle(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Space.Manifest(t.Context(), handle.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range []cache.Blob{m.Chunks[0].Rows[0], m.State[0]} {
		name := "default/blobs/" + blob.Digest.String()
		whole, _ := store.Bytes(name)
		b := append([]byte(nil), whole...)
		b[0] ^= 1
		store.SetBytes(name, b)
		to := cachetest.NewMemory()
		if _, err := archive.Resalt(t.Context(), d.Space, &cache.Space{Store: to}, h, nil); !errors.Is(err, cache.ErrCorrupt) || len(to.Names()) != 0 {
			t.Errorf("%v, and %v were stored", err, to.Names())
		}
		store.SetBytes(name, whole)
	}
}

// Token ids without a state are stored anew and carried like a state.
func TestTokensAloneAreCarried(t *testing.T) {
	d, full := stored(t)
	h, err := d.Space.Handle(t.Context(), full)
	if err != nil {
		t.Fatal(err)
	}
	digest, _, err := branch.ForkTokens(t.Context(), d.Space, h, len(d.Tokens))
	if err != nil {
		t.Fatal(err)
	}
	salt := []byte("another")
	to := &cache.Space{Store: cachetest.NewMemory()}
	c, err := archive.Resalt(t.Context(), d.Space, to, digest, salt)
	if err != nil {
		t.Fatal(err)
	}
	want, err := cache.NewTokensManifest((&cachetest.Document{Salt: salt}).Identity(), d.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, to, c.Handle, want, d.Tokens)

	var file memory
	size, err := archive.WriteFile(t.Context(), to, c.Handle, &file)
	if err != nil {
		t.Fatal(err)
	}
	from, name, err := archive.ReadFile(bytes.NewReader(file.b), size)
	if err != nil || name != c.Handle {
		t.Fatalf("%s, %v", name, err)
	}
	third := &cache.Space{Store: cachetest.NewMemory()}
	if _, err := archive.Copy(t.Context(), from, third, name); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, third, name, want, d.Tokens)
}

// wantIDs reads the ids of a handle for them alone.
func wantIDs(t *testing.T, s *cache.Space, handle cache.Digest, want cache.Manifest, tokens []int32) {
	t.Helper()
	h, err := s.Handle(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Manifest(t.Context(), h.Manifest)
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Fatalf("%+v, %v, want %+v", m, err, want)
	}
	if ids, err := s.Tokens(t.Context(), m); err != nil || !slices.Equal(ids, tokens) {
		t.Errorf("%v, %v", ids, err)
	}
}
