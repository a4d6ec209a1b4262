//go:build unix

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lock takes the exclusive lock of an open file, waiting for it or not (then ErrLocked). It belongs to the open file:
// a second opening, in this process too, does not have it. Closing the file ends it.
func Lock(f *os.File, wait bool) error {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		}
		return err
	}
}

// BlockSize is what the file system of a folder gives room in.
func BlockSize(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return max(int64(s.Bsize), 512), nil
}

// Allocated is the room that a file takes, holes left out.
func Allocated(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(s.Blocks) * 512
	}
	return info.Size()
}

// Free is how many bytes may still be written to the folder's file system by this user.
func Free(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, fmt.Errorf("ask for free space of %s: %w", folder, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
