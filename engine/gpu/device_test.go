package gpu_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"lector/metal"
	"lector/metal/soft"
)

// The detectors run over every kernel of this package: go test ./engine/gpu -soft.mode race, and -soft.seed 1, 2, ...
var (
	softMode  = flag.String("soft.mode", "plain", "what kernels are compiled to detect: plain, race or undefined")
	softApart = flag.Bool("soft.apart", false, "give the device memory apart from the host's, as a graphics card has")
	softSeed  = flag.Uint64("soft.seed", 0, "order of threads and threadgroups: 0 forward, 1 backward, others at random")
)

// openDevice opens the CPU as a device; the test is skipped where its compiler is missing.
func openDevice(t *testing.T) metal.Device {
	t.Helper()
	modes := map[string]soft.Mode{"plain": soft.Plain, "race": soft.Race, "undefined": soft.Undefined}
	mode, ok := modes[*softMode]
	if !ok {
		t.Fatalf("-soft.mode %s: it is plain, race or undefined", *softMode)
	}
	d, err := soft.Open(soft.Options{Cache: filepath.Join(os.TempDir(), "lector-soft"), Mode: mode, Seed: *softSeed})
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	if *softApart {
		return apart{d}
	}
	return d
}
