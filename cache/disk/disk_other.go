//go:build !unix

package disk

import (
	"errors"
	"io/fs"
	"math"
	"os"
)

// Lock refuses: without locks processes could spoil each other's files.
func Lock(*os.File, bool) error { return errors.New("this system has no file locks that lector knows") }

// BlockSize is what most file systems give room in.
func BlockSize(string) (int64, error) { return 4096, nil }

// Allocated is the size of the file.
func Allocated(info fs.FileInfo) int64 { return info.Size() }

// Free cannot tell: the write that finds no room fails.
func Free(string) (int64, error) { return math.MaxInt64, nil }
