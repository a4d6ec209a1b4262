package pack

import (
	"os"
	"path/filepath"
	"testing"
)

// What a killed run left of its journal is read up to the last whole line, and never beyond its end.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"version":1}` + "\n" + `{"unit":"layers.0","sha256":["00"]}` + "\n"))
	f.Add([]byte(`{"version":1}` + "\n" + `{"unit":"layers.0","sha`))
	f.Add([]byte("{}\n{}\n\n{}"))
	f.Add([]byte("null\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, journalFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		was := readJournal(dir)
		if was.end < 0 || was.end > int64(len(b)) || was.end > 0 && b[was.end-1] != '\n' {
			t.Fatalf("%q is read to byte %d", b, was.end)
		}
	})
}
