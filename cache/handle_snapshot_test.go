package cache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Where a blob of an earlier chunk has gone, the last chunk is stored and no handle is: the error names what is missing. One whose
// state is not kept, or whose handle is of another tenant, leaves nothing.
func TestLastChunkWithoutHandle(t *testing.T) {
	folder, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for name, store := range map[string]cache.Store{"memory": cachetest.NewMemory(), "dir": folder} {
		t.Run(name, func(t *testing.T) {
			d := newDocument(store, count(100, 20))
			var nodes []cache.Node
			for i := range len(d.cuts) - 1 {
				node, _, err := d.space.PutStep(t.Context(), d.args(i))
				if err != nil {
					t.Fatal(err)
				}
				nodes = append(nodes, node)
			}
			a := d.args(len(nodes))
			before := names(t, store, "")
			rolling := a
			rolling.Keep = false
			if _, err := d.space.PutLast(t.Context(), rolling, nodes, d.handle); err == nil {
				t.Error("a handle was made of a state that is not kept")
			}
			other := func(m cache.Manifest, digest cache.Digest) cache.Handle {
				h := d.handle(m, digest)
				h.Tenant = "other"
				return h
			}
			if last, err := d.space.PutLast(t.Context(), a, nodes, other); err == nil || last.Node.To != 0 {
				t.Errorf("a handle of another tenant: %v, node up to %d", err, last.Node.To)
			}
			if got := slices.DeleteFunc(names(t, store, ""), isBlob); !slices.Equal(got, slices.DeleteFunc(before, isBlob)) {
				t.Errorf("what was refused left %v", got)
			}
			gone := nodes[0].Rows[0].Digest.String()
			if err := store.Delete(t.Context(), "default/blobs/"+gone); err != nil {
				t.Fatal(err)
			}
			last, err := d.space.PutLast(t.Context(), a, nodes, d.handle)
			if !errors.Is(err, cache.ErrNotFound) || !strings.Contains(fmt.Sprint(err), gone) {
				t.Errorf("blob %s is missing: %v", gone, err)
			}
			if n, err := d.space.Node(t.Context(), a.Key); err != nil || n.To != 20 || last.Node.To != 20 {
				t.Errorf("the last chunk up to %d, told of one up to %d: %v", n.To, last.Node.To, err)
			}
			if left := append(names(t, store, "default/manifests/"), names(t, store, "default/handles/")...); len(left) != 0 {
				t.Errorf("stored all the same: %v", left)
			}
		})
	}
}

// isBlob says whether an object means nothing to anybody before something names it.
func isBlob(name string) bool {
	return strings.Contains(name, "/blobs/") || strings.Contains(name, "/keep/")
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
