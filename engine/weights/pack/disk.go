package pack

import (
	"errors"
	"io"
	"os"
)

// disk is what the packer does to the file system, so that tests can make every step of it fail.
type disk interface {
	mkdir(path string) error
	open(path string) (file, error) // for reading and writing, made if it is not there
	rename(from, to string) error
	remove(path string) error // what is not there counts as removed
	syncDir(path string) error
	free(path string) (int64, error) // bytes that may still be written to the folder's file system
}

// file is an open file of the store.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// system is the real disk.
type system struct{}

func (system) mkdir(path string) error         { return os.MkdirAll(path, 0o755) }
func (system) rename(from, to string) error    { return os.Rename(from, to) }
func (system) free(path string) (int64, error) { return freeBytes(path) }

func (system) open(path string) (file, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
}

func (system) remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (system) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
