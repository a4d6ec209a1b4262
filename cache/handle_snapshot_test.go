package cache_test

import (
	"context"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/dir"
)

// A manifest and a handle that are stored together are those that are stored one after the other, and a second time changes
// nothing. A handle of another tenant, or of none, leaves nothing in the store.
func TestSnapshotIsManifestAndHandle(t *testing.T) {
	folder, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for name, store := range map[string]cache.Store{"memory": cachetest.NewMemory(), "dir": folder} {
		t.Run(name, func(t *testing.T) { snapshotTwice(t, &cache.Space{Store: store}) })
	}
}

func snapshotTwice(t *testing.T, space *cache.Space) {
	d := &cachetest.Document{Space: space, Job: "job", Tokens: count(1, 40), Grid: 16}
	nodes, err := d.Steps(t.Context(), -1)
	if err != nil {
		t.Fatal(err)
	}
	handle := func(tenant string) func(cache.Manifest, cache.Digest) cache.Handle {
		return func(m cache.Manifest, digest cache.Digest) cache.Handle {
			return cache.Handle{Version: cache.HandleVersion, Manifest: digest, Model: d.Identity().Model, Tokens: m.Tokens, Tenant: tenant}
		}
	}
	if _, _, err := space.PutSnapshot(t.Context(), d.Identity(), nodes, handle("other")); err == nil {
		t.Fatal("stored a handle of another tenant")
	}
	if n := len(names(t, space.Store, "default/manifests/")); n != 0 {
		t.Fatalf("a refused handle left %d manifests", n)
	}
	for range 2 {
		m, h, err := space.PutSnapshot(t.Context(), d.Identity(), nodes, handle("default"))
		if err != nil {
			t.Fatal(err)
		}
		if _, digest, err := space.PutManifest(t.Context(), d.Identity(), nodes); err != nil || digest != h.Manifest {
			t.Errorf("manifest %s, stored alone it is %s, %v", h.Manifest, digest, err)
		}
		if digest, err := space.PutHandle(t.Context(), h); err != nil || digest != cache.Sum(h.Encode()) {
			t.Errorf("handle stored alone is %s, %v", digest, err)
		}
		if err := cachetest.Check(t.Context(), space, cache.Sum(h.Encode()), d.Tokens); err != nil || m.Tokens != 40 {
			t.Errorf("%d tokens, %v", m.Tokens, err)
		}
	}
	if n := len(names(t, space.Store, "default/handles/")); n != 1 {
		t.Errorf("%d handles", n)
	}
}

func names(t *testing.T, store cache.Store, prefix string) (out []string) {
	for o, err := range store.List(context.Background(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o.Name)
	}
	return out
}
