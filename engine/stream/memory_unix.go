//go:build unix

package stream

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// allocate reserves n bytes outside of Go's heap, so that the collector does not take them as a reason to let garbage
// grow by as much. Pages become real when they are touched.
func allocate(n int) (data []byte, free func(), err error) {
	data, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|noReserve)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes of memory: %w", n, err)
	}
	if n >= largeBytes {
		tune(data)
	}
	return data, func() { _ = unix.Munmap(data) }, nil // ours and whole: nothing that unmapping could refuse
}

// largeBytes is the size from which on large pages are asked for: they lie within what was asked for, and are touched some
// hundred times faster than small ones where a machine is virtual.
const largeBytes = 2 << 20

// drop gives the pages of a slot back to the system.
func drop(slot []byte) {
	_ = unix.Madvise(slot, dropAdvice) // advice: refusing it costs memory and nothing else
}
