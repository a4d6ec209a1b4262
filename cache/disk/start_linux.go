package disk

import "golang.org/x/sys/unix"

// StartWriting has the system begin to write a range of an open file to the disk and does not wait: a later sync finds less
// left to do. It promises nothing.
func StartWriting(fd uintptr, off, n int64) {
	_ = unix.SyncFileRange(int(fd), off, n, unix.SYNC_FILE_RANGE_WRITE) // a hint: the sync says what could not be written
}
