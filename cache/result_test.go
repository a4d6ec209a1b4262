package cache_test

import (
	"errors"
	"slices"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

// The first result of a job stands; every change of the stored bytes is seen, and writing it again mends it.
func TestResults(t *testing.T) {
	store := cachetest.NewMemory()
	s := &cache.Space{Store: store}
	if _, err := s.Result(t.Context(), "job-1"); !errors.Is(err, cache.ErrNotFound) {
		t.Fatalf("a result that nobody stored: %v", err)
	}
	for _, body := range []string{"first", "second"} {
		standing, err := s.PutResult(t.Context(), "job-1", []byte(body))
		if err != nil || string(standing) != "first" {
			t.Fatalf("stored %q, %q stands: %v", body, standing, err)
		}
	}
	name := s.ResultName("job-1")
	whole, ok := store.Bytes(name)
	if !ok {
		t.Fatalf("no object %s in %v", name, store.Names())
	}
	damaged := [][]byte{nil, whole[:10], whole[:len(whole)-1], append(slices.Clone(whole), ' ')}
	for i := range whole {
		b := slices.Clone(whole)
		b[i] ^= 1
		damaged = append(damaged, b)
	}
	for _, b := range damaged {
		store.SetBytes(name, b)
		_, err := s.Result(t.Context(), "job-1")
		wantError(t, err, cache.ErrCorrupt, name)
		if standing, err := s.PutResult(t.Context(), "job-1", []byte("again")); err != nil || string(standing) != "again" {
			t.Fatalf("in place of a damaged one %q stands: %v", standing, err)
		}
		if got, err := s.Result(t.Context(), "job-1"); err != nil || string(got) != "again" {
			t.Fatalf("mended result is %q: %v", got, err)
		}
	}
	if _, err := s.PutResult(t.Context(), "../x", nil); !errors.Is(err, cache.ErrName) {
		t.Errorf("a job with a slash: %v", err)
	}
}

func FuzzResult(f *testing.F) {
	store := cachetest.NewMemory()
	s := &cache.Space{Store: store}
	if _, err := s.PutResult(f.Context(), "job", []byte(`{"text":"x"}`)); err != nil {
		f.Fatal(err)
	}
	whole, _ := store.Bytes(s.ResultName("job"))
	f.Add(whole)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		store := cachetest.NewMemory()
		s := &cache.Space{Store: store}
		store.SetBytes(s.ResultName("job"), b)
		got, err := s.Result(t.Context(), "job")
		if err != nil {
			return
		}
		if want := cache.Sum(append([]byte("job\n"), got...)).String() + "\n" + string(got); want != string(b) {
			t.Fatalf("%q was taken for the result %q", b, got)
		}
	})
}
