package stream

import (
	"fmt"
	"math"
	"unsafe"

	"lector/engine/ops"
)

// PageBytes is the boundary that slots lie on: a page of Apple's processors, and a multiple of every block that direct
// reads ask for.
const PageBytes = 16384

// Memory returns slots in plain memory, for backends that compute on the host.
func Memory(n, size int) (ops.Slots, error) {
	stride := (size + PageBytes - 1) / PageBytes * PageBytes
	if n < 0 || size < 0 || n > 0 && stride > (math.MaxInt-2*PageBytes)/n {
		return ops.Slots{}, fmt.Errorf("memory for %d records of %d bytes: not a size that memory can have", n, size)
	}
	data, free, err := allocate(n*stride + PageBytes)
	if err != nil {
		return ops.Slots{}, fmt.Errorf("memory for %d records of %d bytes: %w", n, size, err)
	}
	start := -uintptr(unsafe.Pointer(unsafe.SliceData(data))) % PageBytes
	slots := ops.Slots{Mem: make([][]byte, n), Free: free}
	for i := range slots.Mem {
		at := int(start) + i*stride
		slots.Mem[i] = data[at : at+size : at+stride]
	}
	slots.Release = func(i int) { Drop(slots.Mem[i][:stride]) }
	return slots, nil
}
