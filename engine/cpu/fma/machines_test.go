package fma_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"lector/engine/cpu/fma"
)

// The tests that hold every set of kernels against plain Go.
const agreement = "^(TestFMARoundsOnce|TestDotsAgree|TestProductAgrees|TestUnpackAgrees|TestFewAgrees|TestTilesAgree|TestTilesOfUpperHalvesAgree|TestListedRowsAgree|TestTransposeAgrees|TestDecode|TestWidest)$"

// TestWidest says which set a process chose, for the tests that start one.
func TestWidest(t *testing.T) { t.Log("widest: " + fma.Widest().String()) }

// The NEON kernels as an arm64 binary under emulation.
func TestArm64(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("this is not amd64: nothing to emulate")
	}
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip("no qemu-aarch64")
	}
	binary := filepath.Join(t.TempDir(), "fma.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build for arm64: %v\n%s", err, out)
	}
	out, err := exec.Command(qemu, binary, "-test.run="+agreement, "-test.short", "-test.v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "widest: neon") || !strings.Contains(string(out), "--- PASS: TestDotsAgree") {
		t.Errorf("on arm64: %v\n%s", err, out)
	}
}

// A processor that lacks what the widest set needs gets a narrower one, with the same bits.
func TestMissingFeatures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("this is not amd64: other features")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]fma.Set{
		"cpu.avx512f=off":                          fma.AVX2,
		"cpu.avx512f=off,cpu.fma=off":              fma.Plain,
		"cpu.avx512f=off,cpu.avx2=off":             fma.Plain,
		"cpu.all=off":                              fma.Plain,
		"cpu.avx512f=off,cpu.avx=off,cpu.avx2=off": fma.Plain,
	} {
		run := exec.Command(self, "-test.run="+agreement, "-test.short", "-test.v")
		run.Env = append(os.Environ(), "GODEBUG="+flags)
		out, err := run.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "widest: "+min(want, fma.Widest()).String()) {
			t.Errorf("%s: %v, want %s\n%s", flags, err, want, out)
		}
	}
}
