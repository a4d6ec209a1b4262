package stream

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openDirect turns the cache off for the descriptor. Pages that others have cached already are still served from there.
func openDirect(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_NOCACHE, 1); err != nil {
		return nil, errors.Join(fmt.Errorf("turn the cache off for %s: %w", path, err), f.Close())
	}
	return f, nil
}

// refused: the system takes reads of any form.
func refused(error) bool { return false }

func aligned([]byte, int64) bool { return true }

// randomReads asks for no reading ahead.
func randomReads(f *os.File) {
	_, _ = unix.FcntlInt(f.Fd(), unix.F_RDAHEAD, 0) // advice: refusing it costs time and nothing else
}

// readCached: the system does not tell what it holds in memory.
func readCached(*os.File, []byte, int64) bool { return false }
