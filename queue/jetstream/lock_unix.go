//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jetstream

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the exclusive lock of an open file without waiting; errLocked. Closing the file ends it.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		}
		return err
	}
}
