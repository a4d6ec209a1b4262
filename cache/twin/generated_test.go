package twin_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The assembly in the repository is what the generator writes.
func TestKernelsAreGenerated(t *testing.T) {
	dir := t.TempDir()
	gen := exec.Command("go", "run", "./gen", "-out", filepath.Join(dir, "kernels_amd64.s"), "-stubs", filepath.Join(dir, "kernels_amd64.go"), "-pkg", "twin")
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
			t.Errorf("%s is stale: run go generate ./cache/twin", name)
		}
	}
}
