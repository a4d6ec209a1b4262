package stream

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
}

// refused says that the file system does not take a direct read of this form.
func refused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

func aligned(p []byte, off int64) bool {
	return off%directBlock == 0 && len(p)%directBlock == 0 && uintptr(unsafe.Pointer(unsafe.SliceData(p)))%directBlock == 0
}

// randomReads asks for no reading ahead.
func randomReads(f *os.File) {
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) // advice: refusing it costs time and nothing else
}

// readCached reads what the system holds in memory already; false where it does not hold all of it.
func readCached(f *os.File, p []byte, off int64) bool {
	n, err := unix.Preadv2(int(f.Fd()), [][]byte{p}, off, unix.RWF_NOWAIT)
	return err == nil && n == len(p)
}
