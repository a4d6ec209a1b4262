package dir_test

import (
	"path/filepath"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

func TestStager(t *testing.T) {
	cachetest.RunStager(t, func(t *testing.T) (cache.Stager, cache.Store) {
		folder := t.TempDir()
		s := open(t, folder)
		t.Cleanup(func() {
			if left, err := filepath.Glob(filepath.Join(folder, "tmp~", "*")); err != nil || len(left) != 0 {
				t.Errorf("left in the folder of temporary files: %v, %v", left, err)
			}
		})
		return s, s
	})
}
