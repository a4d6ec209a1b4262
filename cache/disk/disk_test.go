package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"lector/cache/disk"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := disk.Lock(first, false); err != nil {
		t.Fatal(err)
	}
	if err := disk.Lock(second, false); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	got := make(chan error)
	go func() { got <- disk.Lock(second, true) }()
	first.Close()
	if err := <-got; err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
}

// What a file takes is never more than Room says.
func TestRoom(t *testing.T) {
	folder := t.TempDir()
	block, err := disk.BlockSize(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, 1, block - 1, block, block + 1, 100*block + 7, 1 << 20} {
		path := filepath.Join(folder, "file")
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if room := disk.Room(n, block); disk.Allocated(info) > room || room < n || room > n+2*block {
			t.Errorf("a file of %d bytes takes %d, and Room says %d", n, disk.Allocated(info), room)
		}
	}
}

func TestFree(t *testing.T) {
	if n, err := disk.Free(t.TempDir()); err != nil || n <= 0 {
		t.Errorf("%d bytes are free: %v", n, err)
	}
	if _, err := disk.Free(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a folder that is not there has room")
	}
}
