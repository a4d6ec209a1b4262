package s3

import (
	"fmt"
	"testing"
)

// A Content-Range header names exactly the bytes that were asked for, or is refused.
func FuzzRangeTotal(f *testing.F) {
	f.Add("bytes 0-9/100", int64(0), int64(10))
	f.Add("bytes 5-9/7", int64(5), int64(5))
	f.Add("bytes 0-9/*", int64(0), int64(10))
	f.Add("", int64(0), int64(3))
	f.Add("bytes 0-9/9223372036854775808", int64(0), int64(10))
	f.Fuzz(func(t *testing.T, header string, off, n int64) {
		if off < 0 || n < 0 || off > 1<<40 || n > 1<<40 {
			return
		}
		total, err := rangeTotal(header, off, n)
		switch {
		case err != nil:
		case header == "" && (off != 0 || total != n):
			t.Fatalf("no header for %d bytes from %d says %d", n, off, total)
		case total < off+n || header != "" && fmt.Sprintf("bytes %d-%d/", off, off+n-1) != header[:len(fmt.Sprintf("bytes %d-%d/", off, off+n-1))]:
			t.Fatalf("%q for %d bytes from %d says %d", header, n, off, total)
		}
	})
}
