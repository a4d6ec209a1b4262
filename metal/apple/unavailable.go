//go:build !(darwin && arm64)

package apple

import (
	"fmt"
	"runtime"

	"lector/metal"
)

// Open returns metal.ErrUnavailable: there is Metal on darwin/arm64 only.
func Open() (metal.Device, error) {
	return nil, fmt.Errorf("%w: Metal needs darwin/arm64, and this is %s/%s", metal.ErrUnavailable, runtime.GOOS, runtime.GOARCH)
}
