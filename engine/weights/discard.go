package weights

import (
	"slices"
	"unsafe"
)

// keep takes a mapped file into the checkpoint's care.
func (c *Checkpoint) keep(data []byte, unmap func() error) {
	c.maps = append(c.maps, data)
	c.closers = append(c.closers, unmap)
}

// Mapped lists the mapped files, where tensors lie: none of a checkpoint in memory. A device may read them in place, as
// long as the checkpoint is open.
func (c *Checkpoint) Mapped() [][]byte { return slices.Clone(c.maps) }

// Discard says that views will not be read again soon, so that their pages need not stay in memory: for those who
// go through a checkpoint that is larger than it. Views stay valid, and anything that is not mapped is left alone.
func (c *Checkpoint) Discard(views ...[]byte) {
	for _, view := range views {
		if len(view) == 0 {
			continue
		}
		at := uintptr(unsafe.Pointer(unsafe.SliceData(view)))
		for _, m := range c.maps {
			start := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
			if len(m) > 0 && at >= start && at-start+uintptr(len(view)) <= uintptr(len(m)) {
				dropPages(m, view)
				break
			}
		}
	}
}
