//go:build unix

package weights

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps a file read-only; unmap ends the mapping.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the mapping outlives the descriptor
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	size := info.Size()
	if size == 0 {
		return nil, func() error { return nil }, nil // an empty mapping is an error to the system, not to us
	}
	if size > math.MaxInt {
		return nil, nil, fmt.Errorf("%s has %d bytes: too large for this machine's address space", path, size)
	}
	data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}

// around is how far beside a touched page the system may map its neighbours: Linux does 64 KiB by default and never
// more than one page table, 2 MiB. Dropping that much on both sides takes what came along; otherwise a little of
// every view would stay, which adds up over a large model.
const around = 2 << 20

// dropPages takes the pages that a view of a mapping touches out of this process; another access reads them again.
func dropPages(mapping, view []byte) {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(view))) - start
	to := min(from+uintptr(len(view))+around, uintptr(len(mapping)))
	from = (from - min(from, around)) &^ (page - 1)
	if to > from {
		_ = unix.Madvise(mapping[from:to], unix.MADV_DONTNEED) // advice: refusing it costs memory and nothing else
	}
}
