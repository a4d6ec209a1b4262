//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package jetstream

import (
	"fmt"
	"os"
	"runtime"
)

// lockFile refuses: without a lock that ends with the process, a folder could get two owners.
func lockFile(*os.File) error {
	return fmt.Errorf("file locks are not supported on %s: use a NATS server instead of a data folder", runtime.GOOS)
}
