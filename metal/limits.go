package metal

import "fmt"

// MaxBlockBytes is how many bytes Encoder.SetBytes takes.
const MaxBlockBytes = 4096

// MaxBuffers is how many buffers a kernel can bind; indices run from 0.
const MaxBuffers = 31

// maxGroups bounds each dimension of a grid of threadgroups, so that positions fit 32 bits.
const maxGroups = 1 << 30

// CheckDispatch says what is wrong with the sizes of a dispatch. Devices call it, because Metal itself ends
// the process of whoever gets them wrong.
func CheckDispatch(p Pipeline, groups, threads Size) error {
	for _, n := range []int{groups.X, groups.Y, groups.Z} {
		if n < 1 || n > maxGroups {
			return fmt.Errorf("kernel %s: %d x %d x %d threadgroups", p.Kernel(), groups.X, groups.Y, groups.Z)
		}
	}
	for _, n := range []int{threads.X, threads.Y, threads.Z} {
		if n < 1 || n > p.MaxThreads() {
			return fmt.Errorf("kernel %s: a threadgroup of %d x %d x %d threads", p.Kernel(), threads.X, threads.Y, threads.Z)
		}
	}
	if n := threads.Count(); n > p.MaxThreads() {
		return fmt.Errorf("kernel %s: a threadgroup of %d threads, where %d can run", p.Kernel(), n, p.MaxThreads())
	}
	return nil
}

// CheckBuffer says what is wrong with where a buffer of size bytes is bound.
func CheckBuffer(index, offset, size int) error {
	switch {
	case index < 0 || index >= MaxBuffers:
		return fmt.Errorf("buffer index %d is not in 0 to %d", index, MaxBuffers-1)
	case offset < 0 || offset >= size:
		return fmt.Errorf("buffer %d: offset %d of %d bytes", index, offset, size)
	}
	return nil
}

// CheckBlock says what is wrong with a constant block of size bytes, or where it is bound.
func CheckBlock(index, size int) error {
	switch {
	case index < 0 || index >= MaxBuffers:
		return fmt.Errorf("buffer index %d is not in 0 to %d", index, MaxBuffers-1)
	case size == 0 || size > MaxBlockBytes:
		return fmt.Errorf("buffer %d: a block has 1 to %d bytes, not %d", index, MaxBlockBytes, size)
	}
	return nil
}

// CheckThreadgroupMemory says what is wrong with the size of a threadgroup argument, where limit bytes are there.
func CheckThreadgroupMemory(index, size, limit int) error {
	switch {
	case index < 0 || index >= MaxBuffers:
		return fmt.Errorf("threadgroup index %d is not in 0 to %d", index, MaxBuffers-1)
	case size <= 0 || size > limit || size%16 != 0:
		return fmt.Errorf("threadgroup memory %d of %d bytes is no multiple of 16 up to %d", index, size, limit)
	}
	return nil
}
