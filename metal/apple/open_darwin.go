//go:build darwin && arm64

package apple

import "lector/metal"

// Open returns the machine's default Metal device, or metal.ErrUnavailable. CoreGraphics is loaded first:
// without it a command-line program has no default device.
func Open() (metal.Device, error) {
	const frameworks = "/System/Library/Frameworks/"
	return open(images{
		objc:    "/usr/lib/libobjc.A.dylib",
		preload: []string{frameworks + "Foundation.framework/Foundation", frameworks + "CoreGraphics.framework/CoreGraphics"},
		metal:   frameworks + "Metal.framework/Metal",
	})
}
