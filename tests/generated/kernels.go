// Package generated holds what a generator wrote into the repository against what it writes now.
package generated

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Kernels fails unless the assembly of the package under test, and its stubs, are what the generator in its folder gen writes.
// pkg is the package's name, folder where it lies in the repository.
func Kernels(t *testing.T, pkg, folder string) {
	t.Helper()
	dir := t.TempDir()
	gen := exec.Command("go", "run", "./gen", "-out", filepath.Join(dir, "kernels_amd64.s"), "-stubs", filepath.Join(dir, "kernels_amd64.go"), "-pkg", pkg)
	if b, err := gen.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	for _, name := range []string{"kernels_amd64.s", "kernels_amd64.go"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// The first line names the command, whose paths differ here.
		_, got, _ = bytes.Cut(got, []byte("\n"))
		_, want, _ = bytes.Cut(want, []byte("\n"))
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate ./%s", name, folder)
		}
	}
}
