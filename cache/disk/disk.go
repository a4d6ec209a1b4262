// Package disk asks the file system what packages that keep files need to know, and tells it what they do: locks that end with
// their process, and what a file really takes. It keeps nothing and may be used from any goroutine.
package disk

import "errors"

// ErrLocked says that another open file has the lock.
var ErrLocked = errors.New("file is locked by another")

// Room is what a file of that many bytes may take on a disk with such blocks: whole blocks, and one for the file
// system's own list of them.
func Room(size, block int64) int64 { return (size+block-1)/block*block + block }
