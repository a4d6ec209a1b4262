//go:build linux && (amd64 || arm64)

package apple_test

import (
	"context"
	"embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"lector/metal"
	"lector/metal/apple"
	"lector/metal/metaltest"
)

//go:embed fake/*.c fake/*.h
var fakeFiles embed.FS

// fakeLibrary names a compiled fake runtime, for test binaries that cannot compile one.
const fakeLibrary = "LECTOR_FAKE_METAL"

// buildFake compiles the fake runtime with a C compiler.
func buildFake(t *testing.T, compilers ...string) string {
	t.Helper()
	if path := os.Getenv(fakeLibrary); path != "" {
		return path
	}
	folder := t.TempDir()
	files, err := fakeFiles.ReadDir("fake")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(folder, "fake.so")
	args := []string{"-O1", "-g", "-fPIC", "-shared", "-pthread", "-o", out}
	for _, f := range files {
		text, err := fakeFiles.ReadFile("fake/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, f.Name())
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".c") {
			args = append(args, path)
		}
	}
	for _, name := range compilers {
		compiler, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if text, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", compiler, err, text)
		}
		return out
	}
	t.Skipf("no C compiler of %q to compile the fake Objective-C runtime with", compilers)
	return ""
}

// fake is a loaded fake runtime and its counts.
type fake struct {
	path           string
	live, unpooled func() int64
}

func loadFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{path: buildFake(t, "gcc", "clang-19", "clang")}
	handle, err := purego.Dlopen(f.path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		t.Fatal(err)
	}
	purego.RegisterLibFunc(&f.live, handle, "fake_live")
	purego.RegisterLibFunc(&f.unpooled, handle, "fake_unpooled")
	return f
}

func (f *fake) open(t *testing.T) metal.Device {
	t.Helper()
	d, err := apple.OpenFake(f.path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (f *fake) expectNothingLeft(t *testing.T) {
	t.Helper()
	if live, unpooled := f.live(), f.unpooled(); live != 0 || unpooled != 0 {
		t.Errorf("%d objects are left, and %d were autoreleased without a pool", live, unpooled)
	}
}

// The suite passes on the binding, and leaves no object behind.
func TestConformance(t *testing.T) {
	f := loadFake(t)
	t.Run("suite", func(t *testing.T) { metaltest.Run(t, f.open) })
	f.expectNothingLeft(t)
}

const faulty = `#include <metal_stdlib>
kernel void fake_fault(device float *x [[buffer(0)]]) {}
kernel void fake_unlinkable(device float *x [[buffer(0)]]) {}
`

// A failing command buffer names its encoder, and its events are raised all the same.
func TestDeviceError(t *testing.T) {
	f := loadFake(t)
	d := f.open(t)
	l, err := d.Compile(metal.Source{Name: "faulty.metal", Text: faulty, FastMath: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Pipeline("fake_unlinkable", nil); err == nil || !strings.Contains(err.Error(), "more registers") || !strings.Contains(err.Error(), "AGXMetal 2") {
		t.Errorf("a pipeline that cannot be made: %v", err)
	}
	if _, err := l.Pipeline("fake_fault", []metal.Constant{{Index: 0, Value: "text"}}); err == nil || !strings.Contains(err.Error(), "string") {
		t.Errorf("a function constant of a type that Metal lacks: %v", err)
	}
	p, err := l.Pipeline("fake_fault", nil)
	if err != nil {
		t.Fatal(err)
	}
	q, errQ := d.NewQueue("q")
	v, errV := d.NewEvent()
	b, errB := d.NewBuffer(64)
	c, errC := q.NewCommandBuffer("doomed")
	if err := errors.Join(errQ, errV, errB, errC); err != nil {
		t.Fatal(err)
	}
	e, err := c.Encoder("attention of layer 3")
	if err != nil {
		t.Fatal(err)
	}
	e.SetPipeline(p)
	e.SetBuffer(0, b, 0)
	e.Dispatch(metal.Size{X: 1, Y: 1, Z: 1}, metal.Size{X: 32, Y: 1, Z: 1})
	e.End()
	c.SignalEvent(v, 6)
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	err = c.Wait(context.Background())
	var reason *apple.Error
	if !errors.As(err, &reason) || reason.Domain != "MTLCommandBufferErrorDomain" || reason.Code != 3 {
		t.Errorf("the error is %v", err)
	}
	for _, part := range []string{"attention of layer 3", "doomed", "GPU Address Fault"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	if v.Value() != 6 {
		t.Errorf("the event of the failed command buffer is at %d", v.Value())
	}
	if err := errors.Join(p.Close(), l.Close(), q.Close(), v.Close(), b.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	f.expectNothingLeft(t)
}

// The fake runtime finds what it is there to find. Most of that ends the process, so each runs in its own.
func TestFakeFinds(t *testing.T) {
	const planted = "LECTOR_PLANTED_FAULT"
	if fault := os.Getenv(planted); fault != "" {
		f := loadFake(t)
		d := f.open(t)
		apple.Plant(d, fault)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		f.expectNothingLeft(t)
		return
	}
	if os.Getenv(fakeLibrary) != "" {
		t.Skip("an emulated test binary does not start itself again")
	}
	path := buildFake(t, "gcc", "clang-19", "clang")
	for fault, want := range map[string]string{
		"over-release": "over-release of NSString", "selector": "-[MTLDevice noSuchMessage]: unrecognized selector",
		"use after release": "of a dead object", "no pool": "1 were autoreleased without a pool", "leak": "1 objects are left",
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFakeFinds$")
		cmd.Env = append(os.Environ(), planted+"="+fault, fakeLibrary+"="+path)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: want %q, got %v and\n%s", fault, want, err, out)
		}
	}
}

func TestUnavailable(t *testing.T) {
	d, err := apple.Open()
	if !errors.Is(err, metal.ErrUnavailable) || d != nil {
		t.Errorf("open on %s: %v", runtime.GOOS, err)
	}
	if _, err := apple.OpenFake(filepath.Join(t.TempDir(), "absent.so")); !errors.Is(err, metal.ErrUnavailable) {
		t.Errorf("open without libraries: %v", err)
	}
}

// The same tests as an arm64 binary under emulation: there, sizes are passed by address.
func TestConformanceArm64(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("this is not amd64: nothing to emulate")
	}
	qemu, errQ := exec.LookPath("qemu-aarch64")
	_, errC := exec.LookPath("aarch64-linux-gnu-gcc")
	if errQ != nil || errC != nil {
		t.Skip("no qemu-aarch64 or no aarch64-linux-gnu-gcc")
	}
	library := buildFake(t, "aarch64-linux-gnu-gcc")
	binary := filepath.Join(t.TempDir(), "apple.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build for arm64: %v\n%s", err, out)
	}
	run := exec.Command(qemu, "-L", "/usr/aarch64-linux-gnu", binary, "-test.run=^(TestConformance|TestDeviceError)$", "-test.v")
	run.Env = append(os.Environ(), fakeLibrary+"="+library)
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestConformance") || !strings.Contains(string(out), "--- PASS: TestDeviceError") {
		t.Errorf("on arm64: %v\n%s", err, out)
	}
}
