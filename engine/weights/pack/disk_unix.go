//go:build unix

package pack

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes asks the file system of a folder for the room that is left to us.
func freeBytes(path string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("ask for free space of %s: %w", path, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// allocated is the room that a file takes already, holes left out.
func allocated(path string) int64 {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return 0
	}
	return int64(s.Blocks) * 512
}

// lock keeps a second packer out of the folder until unlock, or the end of the process.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s is locked: another lector is packing there", path)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
