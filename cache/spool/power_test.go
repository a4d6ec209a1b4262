package spool_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lector/cache/cachetest"
	"lector/cache/disk/disktest"
	"lector/cache/spool"
)

// Whenever the power goes, what was added before and not given up is on the disk whole, and the next owner of the folder
// begins with an empty spool.
func TestPowerFailure(t *testing.T) {
	folder := t.TempDir()
	recorder, err := disktest.Record(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, spool.Options{Folder: folder, Root: recorder, Quota: 8 << 20})
	bodies := [][]byte{bytes.Repeat([]byte("rows "), 70_000), bytes.Repeat([]byte("state "), 300_000), []byte("x")}
	var sizes []int64
	for _, b := range bodies {
		sizes = append(sizes, int64(len(b)))
	}
	batch, err := s.Stage(t.Context(), sizes)
	if err != nil {
		t.Fatal(err)
	}
	var added []int // effects by the end of each Sync
	for _, b := range bodies {
		_, err := batch.Add(t.Context(), bytes.NewReader(b), int64(len(b)))
		if err := errors.Join(err, batch.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		added = append(added, recorder.Effects())
	}
	given := recorder.Effects()
	if err := batch.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range recorder.Effects() + 1 {
		for _, fate := range disktest.Fates(uint64(n)) {
			found := t.TempDir()
			if _, err := recorder.Replay(n, fate, found); err != nil {
				t.Fatal(err)
			}
			for i, b := range bodies {
				if n >= added[i] && n <= given && !holds(t, found, b) {
					t.Errorf("power goes after effect %d, %s: body %d was added and is not there", n, fate.Name, i)
				}
			}
			next, err := spool.Open(spool.Options{Folder: found, Quota: 8 << 20, Store: cachetest.NewMemory()})
			if err != nil {
				t.Fatalf("power goes after effect %d, %s: %v", n, fate.Name, err)
			}
			if left, err := filepath.Glob(filepath.Join(found, "*")); err != nil || len(left) != 1 {
				t.Errorf("power goes after effect %d, %s: left %v, %v", n, fate.Name, left, err)
			}
			if err := next.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// holds says whether a file of the folder has these bytes.
func holds(t *testing.T, folder string, body []byte) bool {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		return err == nil && bytes.Equal(b, body)
	})
}
