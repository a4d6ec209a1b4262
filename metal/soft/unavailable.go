//go:build !(linux && (amd64 || arm64))

package soft

import (
	"fmt"
	"runtime"

	"lector/metal"
)

// Open returns metal.ErrUnavailable: kernels run as fibers on linux/amd64 and linux/arm64 only.
func Open(Options) (metal.Device, error) {
	return nil, fmt.Errorf("%w: the soft device runs on linux/amd64 and linux/arm64, not on %s/%s", metal.ErrUnavailable, runtime.GOOS, runtime.GOARCH)
}
