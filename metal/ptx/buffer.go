//go:build linux && (amd64 || arm64)

package ptx

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"lector/metal"
)

// buffer implements metal.Buffer: host memory that the device sees, or memory of the device that may have a copy here.
type buffer struct {
	device  *device
	at      uint64 // the device's address
	size    int
	charged int64

	mu      sync.Mutex
	data    []byte   // the host's view; of device memory once it was asked for
	mapping []byte   // of ours; nil of wrapped memory
	locked  bool     // data is locked for the device
	own     bool     // at is memory of the device
	apart   bool     // own, and data is a copy that goes back and forth
	lent    []window // of data, which the host may have changed
	closed  bool
	touched bool // the device's memory no longer holds the zeros that it began with
}

// checkSize says whether a buffer can have a size.
func (d *device) checkSize(size int) error {
	if size <= 0 || int64(size) > d.props.MaxBufferBytes {
		return fmt.Errorf("%w: a buffer of %d bytes, where one can have 1 to %d", metal.ErrMemory, size, d.props.MaxBufferBytes)
	}
	return nil
}

// NewBuffer implements metal.Device.
func (d *device) NewBuffer(size int) (metal.Buffer, error) {
	if err := d.checkSize(size); err != nil {
		return nil, err
	}
	b := &buffer{device: d, size: size}
	if err := d.do(b.mapHost); errors.Is(err, ErrLost) {
		return nil, fmt.Errorf("a buffer of %d bytes: %w", size, err)
	} else if err != nil {
		return nil, fmt.Errorf("%w: a buffer of %d bytes: %w", metal.ErrMemory, size, err)
	}
	b.charge(int64(len(b.mapping)))
	return b, nil
}

func (b *buffer) charge(n int64) {
	b.charged += n
	b.device.allocated.Add(n)
}

// mapHost takes zeroed host memory and locks it for the device.
func (b *buffer) mapHost() error {
	page := os.Getpagesize()
	var err error
	if b.mapping, err = unix.Mmap(-1, 0, (b.size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("map %d bytes: %w", b.size, err)
	}
	b.data = b.mapping[:b.size:b.size]
	if err := b.lock(b.mapping); err != nil {
		return errors.Join(err, unix.Munmap(b.mapping))
	}
	return nil
}

// lock locks host memory for the device and learns its address there.
func (b *buffer) lock(memory []byte) error {
	driver, first := b.device.driver, unsafe.Pointer(unsafe.SliceData(memory))
	if err := driver.check("lock host memory", driver.hostRegister(first, uint64(len(memory)), hostPortable|hostDeviceMap)); err != nil {
		return err
	}
	b.locked = true
	if b.own {
		return nil
	}
	return driver.check("map host memory", driver.hostAddress(&b.at, first, 0))
}

// WrapBuffer implements metal.Device.
func (d *device) WrapBuffer(data []byte) (metal.Buffer, error) {
	if len(data) == 0 || int64(len(data)) > d.props.MaxBufferBytes {
		return nil, fmt.Errorf("wrap %d bytes: a buffer can have 1 to %d", len(data), d.props.MaxBufferBytes)
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(data))); at%uintptr(d.props.PageBytes) != 0 {
		return nil, fmt.Errorf("wrap %d bytes: they begin %d bytes after a page of %d", len(data), at%uintptr(d.props.PageBytes), d.props.PageBytes)
	}
	b := &buffer{device: d, size: len(data), data: data[:len(data):len(data)]}
	err := d.do(func() error {
		if b.lock(data) == nil {
			return nil
		}
		if err := b.allocate(); err != nil {
			return err
		}
		return b.upload(0, data)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wrap %d bytes: %w", len(data), err), b.Close())
	}
	return b, nil
}

// upload copies memory of the host to the device. The driver refuses memory that is locked in part, as where another
// wrapped piece ends in it; a detour through memory that is not takes any.
func (b *buffer) upload(offset int, data []byte) error {
	driver, at := b.device.driver, b.at+uint64(offset)
	if len(data) == 0 {
		return nil
	}
	if driver.toDevice(at, unsafe.Pointer(unsafe.SliceData(data)), uint64(len(data))) != statusOK {
		detour := make([]byte, min(len(data), detourBytes))
		for done := 0; done < len(data); {
			n := copy(detour, data[done:])
			if err := driver.check("copy memory of the host", driver.toDevice(at+uint64(done), unsafe.Pointer(unsafe.SliceData(detour)), uint64(n))); err != nil {
				return err
			}
			done += n
		}
	}
	// The driver returns once it has the bytes; other streams would not wait for the rest of their way.
	return driver.check("wait for a copy", driver.streamSync(0))
}

const detourBytes = 4 << 20

// allocate takes memory of the device.
func (b *buffer) allocate() error {
	if err := b.device.driver.check("allocate device memory", b.device.driver.alloc(&b.at, uint64(b.size))); err != nil {
		return err
	}
	b.own = true
	b.charge(int64(b.size))
	return nil
}

// NewLocalBuffer implements metal.LocalMemory.
func (d *device) NewLocalBuffer(size int) (metal.LocalBuffer, error) {
	if err := d.checkSize(size); err != nil {
		return nil, err
	}
	b := &buffer{device: d, size: size, apart: true}
	err := d.do(func() error {
		if err := b.allocate(); err != nil {
			return err
		}
		return d.driver.check("clear device memory", d.driver.set8(b.at, 0, uint64(size)))
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a device buffer of %d bytes: %w", size, err), b.Close())
	}
	return b, nil
}

// Bytes implements metal.Buffer. Of device memory it is nil where the device is lost.
func (b *buffer) Bytes() []byte {
	if b.apart {
		return b.Window(0, b.size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data
}

// Window implements metal.LocalBuffer. It is nil where the device is lost.
func (b *buffer) Window(offset, size int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if b.apart {
		if err := b.device.do(func() error { return b.fetch(window{offset, offset + size}) }); err != nil {
			return nil
		}
	}
	return b.data[offset : offset+size : offset+size]
}

// Write implements metal.LocalBuffer.
func (b *buffer) Write(offset int, data []byte) error {
	if offset < 0 || len(data) > b.size || offset > b.size-len(data) {
		return fmt.Errorf("write %d bytes at %d of a buffer of %d", len(data), offset, b.size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touched = true
	return b.device.do(func() error { return errors.Join(b.settle(), b.upload(offset, data)) })
}

// window is a range of bytes of the copy.
type window struct{ from, to int }

// fetch brings a range to the host, and counts on changes there. What the host may have changed in it before goes to the
// device first.
func (b *buffer) fetch(w window) error {
	if b.data == nil {
		if err := b.mapHost(); err != nil {
			return err
		}
	}
	for _, lent := range b.lent {
		if lent.from <= w.from && w.to <= lent.to {
			return nil // the host's is the newer one
		}
		if lent.from < w.to && w.from < lent.to {
			if err := b.settle(); err != nil {
				return err
			}
			break
		}
	}
	b.lent = append(b.lent, w)
	if !b.touched || w.from == w.to {
		return nil // before any work it holds zeros, as the new mapping does
	}
	driver := b.device.driver
	return driver.check("copy to the host", driver.toHost(unsafe.Pointer(unsafe.SliceData(b.data[w.from:])), b.at+uint64(w.from), uint64(w.to-w.from)))
}

// settle sends what the host may have changed to the device, and waits.
func (b *buffer) settle() error {
	if len(b.lent) == 0 {
		return nil
	}
	return errors.Join(b.giveBack(0), b.device.driver.check("wait for a copy", b.device.driver.streamSync(0)))
}

// giveBack sends it behind the work of a stream.
func (b *buffer) giveBack(stream uintptr) error {
	for _, w := range b.lent {
		if w.from == w.to {
			continue
		}
		err := b.device.driver.check("copy to the device", b.device.driver.toDeviceAsync(b.at+uint64(w.from), unsafe.Pointer(unsafe.SliceData(b.data[w.from:])), uint64(w.to-w.from), stream))
		if err != nil {
			return err
		}
	}
	b.lent, b.touched = b.lent[:0], true
	return nil
}

// bound readies the buffer for work on a stream that reads or writes it.
func (b *buffer) bound(stream uintptr, written bool) error {
	if !b.apart {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touched = b.touched || written
	if len(b.lent) == 0 {
		return nil
	}
	return b.giveBack(stream)
}

// Close implements metal.Buffer.
func (b *buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	err := b.device.do(b.release)
	if b.device.lost.Load() != nil {
		err = nil // the driver let go of it
	}
	if b.mapping != nil {
		err = errors.Join(err, unix.Munmap(b.mapping))
	}
	b.data, b.mapping = nil, nil
	b.device.allocated.Add(-b.charged)
	return err
}

func (b *buffer) release() error {
	var errs []error
	driver := b.device.driver
	if b.locked {
		errs = append(errs, driver.check("unlock host memory", driver.hostUnregister(unsafe.Pointer(unsafe.SliceData(b.data)))))
	}
	if b.own {
		errs = append(errs, driver.check("free device memory", driver.free(b.at)))
	}
	return errors.Join(errs...)
}
