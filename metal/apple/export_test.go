//go:build linux && (amd64 || arm64)

package apple

import "lector/metal"

// OpenFake opens the device of a fake runtime, one library for all.
func OpenFake(path string) (metal.Device, error) {
	return open(images{objc: path, preload: []string{path}, metal: path})
}

// Plant does one thing that the fake runtime must not let pass.
func Plant(d metal.Device, fault string) {
	own := d.(*device)
	switch fault {
	case "over-release":
		own.pool(func() {
			s := own.nsString("once")
			own.release(s)
		})
	case "selector":
		own.send(own.id, own.selector("noSuchMessage"))
	case "use after release":
		var s id
		own.pool(func() { s = own.nsString("gone") })
		own.send(s, own.sel.utf8String)
	case "no pool":
		own.nsString("nobody releases it")
	case "leak":
		own.send(own.classNamed("MTLCompileOptions"), own.sel.new)
	}
}
