package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// directBlock is what offset, length and address of a direct read are multiples of: the largest block of usual disks.
const directBlock = 4096

// File reads at positions, past the page cache where the system and the file system can: a sweep over a store that is
// larger than memory would only push everything else out of it.
type File struct {
	direct *os.File // nil where there are no direct reads
	plain  *os.File
	failed atomic.Bool // a direct read was refused: from now on plain ones
}

var _ io.ReaderAt = (*File)(nil)

// OpenFile opens a file for reading.
func OpenFile(path string) (*File, error) {
	plain, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{plain: plain}
	f.direct, err = openDirect(path)
	if err != nil && !errors.Is(err, errNoDirect) {
		f.failed.Store(true) // a file system without direct reads refuses to open
	}
	return f, nil
}

// errNoDirect says that the system has no direct reads.
var errNoDirect = errors.New("no direct reads on this system")

// Direct says whether reads go past the page cache, as far as is known by now.
func (f *File) Direct() bool { return f.direct != nil && !f.failed.Load() }

// ReadAt implements io.ReaderAt. Reads whose offset, length and memory lie on block boundaries are direct.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if !f.Direct() || !aligned(p, off) {
		return f.plain.ReadAt(p, off)
	}
	n, err := f.direct.ReadAt(p, off)
	if err == nil || errors.Is(err, io.EOF) || !refused(err) {
		return n, err
	}
	f.failed.Store(true)
	return f.plain.ReadAt(p, off)
}

// Close closes the file.
func (f *File) Close() error {
	err := f.plain.Close()
	if f.direct != nil {
		err = errors.Join(err, f.direct.Close())
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", f.plain.Name(), err)
	}
	return nil
}
