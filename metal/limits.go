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
