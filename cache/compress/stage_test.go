package compress_test

import (
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/compress"
	"lector/cache/dir"
)

// What does not compress stages as the store beneath does; what compresses cannot, since it stores other bytes.
func TestStager(t *testing.T) {
	folder := func(t *testing.T, write bool) cache.Store {
		inner, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { inner.Close() })
		s, err := compress.New(inner, write)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	cachetest.RunStager(t, func(t *testing.T) (cache.Stager, cache.Store) {
		s := folder(t, false)
		return s.(cache.Stager), s
	})
	if _, ok := folder(t, true).(cache.Stager); ok {
		t.Error("a store that compresses says that it can stage")
	}
}
