//go:build !(linux && (amd64 || arm64))

package ptx

import (
	"fmt"
	"runtime"

	"lector/metal"
)

// Open returns metal.ErrUnavailable: the driver is called on linux/amd64 and linux/arm64 only.
func Open(Options) (metal.Device, error) {
	return nil, fmt.Errorf("%w: the CUDA driver is called on linux/amd64 and linux/arm64, not on %s/%s", metal.ErrUnavailable, runtime.GOOS, runtime.GOARCH)
}
