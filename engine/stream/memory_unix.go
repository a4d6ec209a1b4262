//go:build unix

package stream

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocate reserves n bytes outside of Go's heap, so that the collector does not take them as a reason to let garbage
// grow by as much. Pages become real when they are touched.
func allocate(n int) (data []byte, free func(), err error) {
	room := n
	if n >= largeBytes {
		room += largeBytes
	}
	whole, err := unix.Mmap(-1, 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|noReserve)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes of memory: %w", n, err)
	}
	data = whole[:n]
	if n >= largeBytes {
		start := int(-uintptr(unsafe.Pointer(unsafe.SliceData(whole))) % largeBytes)
		data = whole[start : start+n]
		tune(data)
	}
	return data, func() { _ = unix.Munmap(whole) }, nil // ours and whole: nothing that unmapping could refuse
}

// largeBytes is the size from which on large pages are asked for, and the boundary that such memory lies on: a large page
// lies on one and within what was asked for, and is touched some hundred times faster than small ones where a machine is
// virtual.
const largeBytes = 2 << 20

// Drop gives whole pages of memory that was mapped here back to the system; what is read there next is zero.
func Drop(slot []byte) {
	_ = unix.Madvise(slot, dropAdvice) // advice: refusing it costs memory and nothing else
}
