package branch_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/branch"
	"lector/cache/cachetest"
)

func read(t *testing.T, s *cache.Space, tokens []int32, keep func(int) bool) (cache.Digest, cache.Manifest) {
	t.Helper()
	h, m, err := (&cachetest.Document{Space: s, Tokens: tokens, Keep: keep}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h, m
}

// A fork at a kept boundary restores to the state that was there, and adds nothing but its manifest and handle.
func TestFork(t *testing.T) {
	store := cachetest.NewMemory()
	s := &cache.Space{Store: store}
	tokens := cachetest.Count(5, 30)
	h, m := read(t, s, tokens, func(i int) bool { return i == 1 })
	at, err := branch.Boundaries(t.Context(), s, m)
	if err != nil || !slices.Equal(at, []int{16, 30}) {
		t.Errorf("Boundaries: %v, %v", at, err)
	}
	handle, err := s.Handle(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	before := len(store.Names())
	for range 3 {
		d, forked, err := branch.Fork(t.Context(), s, handle, 16)
		if err != nil || forked.Tokens != 16 {
			t.Fatalf("Fork: %+v, %v", forked, err)
		}
		if err := cachetest.Check(t.Context(), s, d, tokens[:16]); err != nil {
			t.Error(err)
		}
	}
	if n := len(store.Names()); n != before+2 {
		t.Errorf("forks added %d objects", n-before)
	}
	for _, at := range []int{0, 8, 15, 24, 31} {
		if _, _, err := branch.Fork(t.Context(), s, handle, at); !errors.Is(err, branch.ErrBoundary) || !strings.Contains(err.Error(), "16, 30") {
			t.Errorf("Fork at %d: %v", at, err)
		}
	}
	if d, _, err := branch.Fork(t.Context(), s, handle, 30); err != nil || d != h {
		t.Errorf("Fork at the end: %v, %v", d, err)
	}
}

// What differs is worked out from the tokens alone: row t of the toy is a digest of the tokens up to t and its lag.
func TestDiff(t *testing.T) {
	base := cachetest.Count(5, 30)
	other := slices.Clone(base)
	other[20] = 900
	for _, c := range []struct {
		name   string
		a, b   []int32
		shared int
		want   string
	}{
		{"same", base, base, 30, "[]"},
		{"one is a part of the other, within a chunk", base[:21], base, 21, "[]"},
		{"a token differs", base, other, 19, "[{tokens 20 21} {layers.0.k 20 30} {mtp.k 19 29} {layers.1.s 30 30} {residual 30 30}]"},
		{"a token differs, other lengths", base[:28], other, 19, "[{tokens 20 21} {layers.0.k 20 28} {mtp.k 19 27}]"},
	} {
		s := &cache.Space{Store: cachetest.NewMemory()}
		_, a := read(t, s, c.a, nil)
		_, b := read(t, s, c.b, nil)
		got, err := branch.Diff(t.Context(), s, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got.Differ) != c.want || got.Shared != c.shared || got.Equal() != (c.name == "same") {
			t.Errorf("%s: %+v, want %s and %d shared", c.name, got, c.want, c.shared)
		}
	}
}

// A damaged blob is an error, and no difference.
func TestDiffOfDamage(t *testing.T) {
	store := cachetest.NewMemory()
	s := &cache.Space{Store: store}
	_, a := read(t, s, cachetest.Count(5, 20), nil)
	_, b := read(t, s, cachetest.Count(6, 20), nil)
	store.SetBytes("default/blobs/"+a.Chunks[0].Rows[0].Digest.String(), make([]byte, a.Chunks[0].Rows[0].Size))
	if _, err := branch.Diff(t.Context(), s, a, b); !errors.Is(err, cache.ErrCorrupt) {
		t.Errorf("Diff: %v", err)
	}
}

// A thousand forks of one document, at every boundary and for twenty lifetimes of its handle, add their manifests and
// handles, and not a byte of state. A boundary's manifest is stored once for all lifetimes.
func TestThousandForks(t *testing.T) {
	store := cachetest.NewMemory()
	s := &cache.Space{Store: store}
	tokens := cachetest.Count(5, 51*8)
	h, m := read(t, s, tokens, func(int) bool { return true })
	handle, err := s.Handle(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	at, err := branch.Boundaries(t.Context(), s, m)
	if err != nil {
		t.Fatal(err)
	}
	want := sizesByKind(t, store)
	forks := map[cache.Digest]bool{}
	for life := range 20 {
		handle.Expires = time.Date(2030, 1, 1+life, 0, 0, 0, 0, time.UTC)
		for _, n := range at[:len(at)-1] {
			d, forked, err := branch.Fork(t.Context(), s, handle, n)
			if err != nil {
				t.Fatal(err)
			}
			forks[d] = true
			want["handles"] += int64(len(forked.Encode()))
			if life == 0 {
				part, err := s.Manifest(t.Context(), forked.Manifest)
				if err != nil {
					t.Fatal(err)
				}
				b, err := part.Encode()
				if err != nil {
					t.Fatal(err)
				}
				want["manifests"] += int64(len(b))
			}
			if n == at[30] {
				if err := cachetest.Check(t.Context(), s, d, tokens[:n]); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if got := sizesByKind(t, store); len(forks) != 1000 || !maps.Equal(got, want) {
		t.Errorf("%d forks; the store holds %v bytes, want %v", len(forks), got, want)
	}
}

// sizesByKind sums the bytes of a store's objects by the folder they are in.
func sizesByKind(t *testing.T, store *cachetest.Memory) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, name := range store.Names() {
		b, ok := store.Bytes(name)
		if !ok {
			t.Fatalf("%s has gone", name)
		}
		out[strings.Split(name, "/")[1]] += int64(len(b))
	}
	return out
}

// Token ids fork anywhere, of a state and of ids alone, to what storing them gives; and they are told from a state.
func TestForkTokens(t *testing.T) {
	s := &cache.Space{Store: cachetest.NewMemory()}
	tokens := cachetest.Count(5, 30)
	h, m := read(t, s, tokens, nil)
	full, err := s.Handle(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	_, whole, err := branch.ForkTokens(t.Context(), s, full, 30)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := s.Manifest(t.Context(), whole.Manifest)
	if err != nil || !alone.TokensOnly() || whole.Tokens != 30 || whole.Model != full.Model {
		t.Fatalf("%+v, %v", whole, err)
	}
	for _, n := range []int{1, 8, 13, 29, 30} {
		_, want, err := s.PutTokens(t.Context(), m.Identity, tokens[:n])
		if err != nil {
			t.Fatal(err)
		}
		_, a, err := branch.ForkTokens(t.Context(), s, full, n)
		_, b, err2 := branch.Fork(t.Context(), s, whole, n)
		if err := errors.Join(err, err2); err != nil || a.Manifest != want || b.Manifest != want || a.Tokens != n || b.Tokens != n {
			t.Errorf("fork at %d: %+v and %+v, want the manifest %s, %v", n, a, b, want, err)
		}
	}
	for _, n := range []int{0, -1, 31} {
		if _, _, err := branch.Fork(t.Context(), s, whole, n); !errors.Is(err, branch.ErrBoundary) {
			t.Errorf("fork at %d: %v", n, err)
		}
	}
	if c, err := branch.Diff(t.Context(), s, m, alone); err != nil || c.Equal() || c.Shared != 30 || len(c.Differ) != 0 || c.Alone != [2]bool{false, true} {
		t.Errorf("a state and its ids: %+v, %v", c, err)
	}
	other := slices.Clone(tokens)
	other[11]++
	theirs, _, err := s.PutTokens(t.Context(), m.Identity, other[:20])
	if err != nil {
		t.Fatal(err)
	}
	c, err := branch.Diff(t.Context(), s, alone, theirs)
	if err != nil || c.Equal() || c.Shared != 11 || !slices.Equal(c.Differ, []branch.Difference{{Region: "tokens", From: 11, To: 12}}) {
		t.Errorf("ids and others: %+v, %v", c, err)
	}
	if c, err := branch.Diff(t.Context(), s, alone, alone); err != nil || !c.Equal() {
		t.Errorf("ids and themselves: %+v, %v", c, err)
	}
}
