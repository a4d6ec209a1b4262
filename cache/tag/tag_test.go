package tag_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/tag"
)

// handle stores one of so many tokens; its manifest need not be one.
func handle(t *testing.T, s *cache.Space, tokens int) cache.Digest {
	t.Helper()
	h := cache.Handle{Version: cache.HandleVersion, Manifest: cache.Sum([]byte("m")), Tokens: tokens, Tenant: s.TenantName()}
	s.Store.(*cachetest.Memory).SetBytes(s.TenantName()+"/manifests/"+h.Manifest.String(), []byte("m"))
	d, err := s.PutHandle(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTags(t *testing.T) {
	s := &cache.Space{Store: cachetest.NewMemory(), Tenant: "acme"}
	one, two := handle(t, s, 1), handle(t, s, 2)
	for _, set := range []struct {
		name string
		d    cache.Digest
	}{{"book", one}, {"Book.2_x-y", two}, {"book", two}} {
		if err := tag.Set(t.Context(), s, set.name, set.d); err != nil {
			t.Fatal(err)
		}
		if d, h, err := tag.Find(t.Context(), s, set.name); err != nil || d != set.d || h.Tenant != "acme" {
			t.Errorf("Find(%s) = %v, %+v, %v", set.name, d, h, err)
		}
	}
	if d, _, err := tag.Find(t.Context(), s, cache.HandleName(one)[:14]); err != nil || d != one {
		t.Errorf("Find by the beginning of a handle: %v, %v", d, err)
	}
	var names []string
	for g, err := range tag.All(t.Context(), s) {
		if err != nil || g.Handle != two || g.Set.IsZero() {
			t.Errorf("All gives %+v, %v", g, err)
		}
		names = append(names, g.Name)
	}
	if !slices.Equal(names, []string{"Book.2_x-y", "book"}) {
		t.Errorf("All lists %v", names)
	}
	for range 2 {
		if err := tag.Remove(t.Context(), s, "book"); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := tag.Find(t.Context(), s, "book"); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("Find after Remove: %v", err)
	}
	other := &cache.Space{Store: s.Store, Tenant: "other"}
	if _, err := tag.Get(t.Context(), other, "Book.2_x-y"); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	store := cachetest.NewMemory()
	s := &cache.Space{Store: store}
	d := handle(t, s, 1)
	for _, name := range []string{"", ".", "..", "a/b", "a b", "lh1-x", "LH1-x", strings.Repeat("x", 129)} {
		if err := tag.Set(t.Context(), s, name, d); !errors.Is(err, tag.ErrName) {
			t.Errorf("Set(%.20q): %v", name, err)
		}
	}
	if err := tag.Set(t.Context(), s, "a", cache.Sum(nil)); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("Set to an unknown handle: %v", err)
	}
	good := d.String() + "\n"
	for _, body := range []string{"", d.String(), good + "x", strings.ToUpper(good), strings.Repeat("x", 1<<20)} {
		store.SetBytes("default/tags/a", []byte(body))
		if _, err := tag.Get(t.Context(), s, "a"); !errors.Is(err, cache.ErrCorrupt) {
			t.Errorf("Get of %.20q: %v", body, err)
		}
		for _, err := range tag.All(t.Context(), s) {
			if !errors.Is(err, cache.ErrCorrupt) {
				t.Errorf("All of %.20q: %v", body, err)
			}
		}
	}
}

// The bytes of a tag are one handle's and its own, or damaged.
func FuzzTag(f *testing.F) {
	whole := cache.Sum(nil).String() + " book\n"
	for _, s := range []string{whole, whole[:len(whole)-1], whole + "\n", strings.ToUpper(whole), strings.Replace(whole, "book", "b", 1), ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		store := cachetest.NewMemory()
		store.SetBytes("default/tags/book", b)
		d, err := tag.Get(t.Context(), &cache.Space{Store: store}, "book")
		if err == nil && string(b) != d.String()+" book\n" || err != nil && !errors.Is(err, cache.ErrCorrupt) {
			t.Fatalf("%q is %v, %v", b, d, err)
		}
	})
}
