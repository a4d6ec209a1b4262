package stream

import "golang.org/x/sys/unix"

// tune asks for large pages: a direct read pins every page that it writes to.
func tune(data []byte) {
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE) // advice: refusing it costs time and nothing else
}

const (
	noReserve  = unix.MAP_NORESERVE
	dropAdvice = unix.MADV_DONTNEED
)
