package dir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/dir"
)

func TestStager(t *testing.T) {
	cachetest.RunStager(t, func(t *testing.T) (cache.Stager, cache.Store) {
		folder := t.TempDir()
		t.Cleanup(func() {
			if left, err := filepath.Glob(filepath.Join(folder, "*~", "*")); err != nil || len(left) != 0 {
				t.Errorf("left in the folder of temporary files: %v, %v", left, err)
			}
		})
		s := open(t, folder) // and closed before that
		s.InlineBytes(10)    // some objects are in the log, and some are files
		return s, s
	})
}

// However many folders come and go, a store holds only so many open, and none after its end.
func TestOpenFolders(t *testing.T) {
	const descriptors = "/proc/self/fd"
	open := func() int {
		entries, err := os.ReadDir(descriptors)
		if err != nil {
			return 0 // this system does not say
		}
		return len(entries)
	}
	before := open()
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		name := fmt.Sprintf("t/rolling/job%d/x", i)
		put(t, s, name, "x")
		if i%2 == 0 {
			if err := s.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			put(t, s, name, "again")
		}
	}
	if n := open() - before; n > 80 {
		t.Errorf("%d files are open", n)
	}
	if n := len(listed(t, s, "")); n != 150 {
		t.Errorf("%d objects", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := open() - before; n > 4 {
		t.Errorf("%d files are open after the end", n)
	}
}
