//go:build unix && !linux

package stream

import "golang.org/x/sys/unix"

// tune does nothing: the system chooses its pages.
func tune([]byte) {}

const (
	noReserve  = 0
	dropAdvice = unix.MADV_FREE
)
