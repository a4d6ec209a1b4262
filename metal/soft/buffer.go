//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"lector/metal"
)

// buffer implements metal.Buffer. An allocated one ends at a page that nobody may touch, and begins 16 bytes
// aligned or better.
type buffer struct {
	device  *device
	data    []byte
	mapping []byte // with its guard pages; nil of wrapped memory
	charged int64

	mu     sync.Mutex
	shadow []byte // of mode Race
	closed bool
}

// cellSpan is how many bytes a shadow cell covers, as in rt/race.h.
const cellSpan = 2

// NewBuffer implements metal.Device.
func (d *device) NewBuffer(size int) (metal.Buffer, error) {
	if size <= 0 || int64(size) > d.props.MaxBufferBytes {
		return nil, fmt.Errorf("%w: a buffer of %d bytes, where one can have 1 to %d", metal.ErrMemory, size, d.props.MaxBufferBytes)
	}
	page := os.Getpagesize()
	rounded := (size + page - 1) / page * page
	if total := d.allocated.Add(int64(rounded)); total > d.props.WorkingSetBytes {
		d.allocated.Add(-int64(rounded))
		return nil, fmt.Errorf("%w: %d bytes more than the %d allocated pass the limit of %d", metal.ErrMemory, rounded, total-int64(rounded), d.props.WorkingSetBytes)
	}
	b := &buffer{device: d, charged: int64(rounded)}
	var err error
	if b.mapping, err = unix.Mmap(-1, 0, rounded+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE); err != nil {
		d.allocated.Add(-int64(rounded))
		return nil, fmt.Errorf("%w: map %d bytes: %w", metal.ErrMemory, rounded, err)
	}
	for _, guard := range [][]byte{b.mapping[:page], b.mapping[page+rounded:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			return nil, fmt.Errorf("%w: guard %d bytes: %w", metal.ErrMemory, rounded, err)
		}
	}
	begin := page + (rounded-size)&^15
	b.data = b.mapping[begin : begin+size : begin+size]
	return b, nil
}

// WrapBuffer implements metal.Device.
func (d *device) WrapBuffer(data []byte) (metal.Buffer, error) {
	if len(data) == 0 || int64(len(data)) > d.props.MaxBufferBytes {
		return nil, fmt.Errorf("wrap %d bytes: a buffer can have 1 to %d", len(data), d.props.MaxBufferBytes)
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(data))); at%uintptr(d.props.PageBytes) != 0 {
		return nil, fmt.Errorf("wrap %d bytes: they begin %d bytes after a page of %d", len(data), at%uintptr(d.props.PageBytes), d.props.PageBytes)
	}
	return &buffer{device: d, data: data[:len(data):len(data)]}, nil
}

// Bytes implements metal.Buffer.
func (b *buffer) Bytes() []byte { return b.data }

// address is where the byte at offset lies.
func (b *buffer) address(offset int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b.data))) + uintptr(offset)
}

// shadowAt is the shadow cell of the byte at offset, or 0 outside of mode Race.
func (b *buffer) shadowAt(offset int) (uintptr, error) {
	cell := b.device.cellBytes
	if cell == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shadow == nil {
		s, err := unix.Mmap(-1, 0, (len(b.data)/cellSpan+2)*cell, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err != nil {
			return 0, fmt.Errorf("%w: map the shadow of %d bytes: %w", metal.ErrMemory, len(b.data), err)
		}
		b.shadow = s
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(b.shadow))) + uintptr(offset/cellSpan*cell), nil
}

// Close implements metal.Buffer.
func (b *buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.data = nil
	for _, m := range [][]byte{b.mapping, b.shadow} {
		if m == nil {
			continue
		}
		if err := unix.Munmap(m); err != nil {
			return fmt.Errorf("unmap a buffer: %w", err)
		}
	}
	b.device.allocated.Add(-b.charged)
	b.mapping, b.shadow = nil, nil
	return nil
}
