package disk_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"lector/cache/disk"
)

// What is written early is what is written: in a file whatever the sizes of the writes, and into what is no file.
func TestEarly(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 200<<10) // 3.1 MB
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	for _, to := range []io.Writer{f, &plain} {
		w := disk.NewEarly(to)
		for rest := body; len(rest) > 0; {
			n, err := w.Write(rest[:min(len(rest), 300_000)])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, body) || !bytes.Equal(plain.Bytes(), body) {
		t.Errorf("%d bytes in the file and %d in memory of %d: %v", len(got), plain.Len(), len(body), err)
	}
}
