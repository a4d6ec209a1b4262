package selfcheck_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/engine/selfcheck"
	"lector/metal"
	"lector/metal/soft"
	"lector/shaders"
)

func run(t *testing.T, subject ops.Backend) []selfcheck.Result {
	t.Helper()
	results, err := selfcheck.Run(context.Background(), cpu.New(cpu.Options{}), subject)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// The kernels pass in both classes, and together the checks run every kernel that there is.
func TestKernelsPass(t *testing.T) {
	d, err := soft.Open(soft.Options{Cache: filepath.Join(os.TempDir(), "lector-soft")})
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var ran []string
	for _, float := range []bool{false, true} {
		b, err := gpu.New(d, gpu.Options{Float32: float})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range run(t, b) {
			if !r.OK() {
				t.Errorf("%s: %s %s is off by %.1e, want at most %.0e: %s", b.Class(), r.Op, r.Shape, r.Off, r.Bound, r.Err)
			}
		}
		ran = append(ran, b.Kernels()...)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, k := range shaders.Kernels() {
		if !slices.Contains(ran, k) {
			t.Errorf("no check runs %s", k)
		}
	}
}

// broken is a backend of which one operation does not do what it should.
type broken struct{ *cpu.Backend }

func (b broken) AddGated(ops.Tensor, ops.Tensor, ops.Tensor) {} // leaves y as it is

// A wrong operation is found, and the others are not blamed.
func TestWrongIsFound(t *testing.T) {
	if bad := selfcheck.Failed(run(t, cpu.New(cpu.Options{Workers: 1}))); bad != 0 {
		t.Errorf("%d checks of the reference itself failed", bad)
	}
	results := run(t, broken{cpu.New(cpu.Options{})})
	for _, r := range results {
		if wrong := r.Op == "SiLU, Sigmoid, SwiGLU, Add, AddGated"; r.OK() == wrong {
			t.Errorf("%s %s: passes %v", r.Op, r.Shape, r.OK())
		}
	}
	if len(results) < 60 {
		t.Errorf("%d checks only", len(results))
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := selfcheck.Run(ctx, cpu.New(cpu.Options{}), cpu.New(cpu.Options{})); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
