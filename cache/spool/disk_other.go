//go:build !unix

package spool

import (
	"errors"
	"os"
)

// lock refuses: without a lock two processes could spoil each other's files.
func lock(*os.File) error { return errors.New("this system has no file locks that lector knows") }

// blockSize is what most file systems give room in.
func blockSize(string) (int64, error) { return 4096, nil }
