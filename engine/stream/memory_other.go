//go:build !unix

package stream

// allocate takes n bytes of Go's heap where memory cannot be mapped.
func allocate(n int) (data []byte, free func(), err error) {
	return make([]byte, n+PageBytes), func() {}, nil
}

// Drop does nothing where memory is not mapped.
func Drop([]byte) {}
