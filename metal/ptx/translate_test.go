package ptx_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lector/metal"
	"lector/metal/metaltest"
	"lector/metal/ptx"
	"lector/shaders"
)

// sources are all that the program and these tests run; the last does not compile.
func sources(t *testing.T) []metal.Source {
	t.Helper()
	all := []metal.Source{metaltest.Source(), deviceSource()}
	for _, name := range shaders.Libraries() {
		text, err := shaders.Source(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, metal.Source{Name: name, Text: text})
	}
	return all
}

// broken is the suite's source that does not compile: a machine without a compiler must know that it doesn't.
func broken() metal.Source {
	return metal.Source{Name: "broken.metal", Text: "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float *x [[buffer(0)]]) {\n  x[0] = nothing;\n}\n"}
}

// Every kernel of the program becomes PTX that calls nothing and keeps nothing in memory of its threads. With
// -ptx.cache the folder is filled for a machine without a compiler.
func TestTranslate(t *testing.T) {
	folder := *cacheFlag
	if folder == "" {
		folder = t.TempDir()
	}
	for _, s := range sources(t) {
		err := ptx.Translate(folder, s)
		if errors.Is(err, metal.ErrUnavailable) {
			t.Skip(err)
		}
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if err := ptx.Translate(folder, broken()); !errors.Is(err, metal.ErrCompile) {
		t.Errorf("a source that names nothing: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.ptx"))
	if err != nil || len(files) < len(sources(t)) {
		t.Fatalf("%d files of PTX: %v", len(files), err)
	}
	entries := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		entries += strings.Count(string(text), ".visible .entry ")
		for _, bad := range []string{".extern .func", "__local_depot", "call.uni"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %s", filepath.Base(name), bad)
			}
		}
	}
	if entries < 50 {
		t.Errorf("%d kernels only", entries)
	}
}

// The tensor cores are what half matrices run on.
func TestTensorCores(t *testing.T) {
	folder := t.TempDir()
	err := ptx.Translate(folder, metaltest.Source())
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.ptx"))
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	_, tile, _ := strings.Cut(string(text), "mslk_suite_tile(")
	if !strings.Contains(tile, "mma.sync.aligned.m16n8k8") {
		t.Error("the product of two half matrices is no mma.sync")
	}
}

// What does not compile is remembered with its reason, and is no reason to look for a compiler.
func TestRemembersFailures(t *testing.T) {
	folder := t.TempDir()
	source := metal.Source{Name: "broken.metal", Text: "kernel void k(device float *x [[buffer(0)]]) {\n  x[0] = nothing;\n}\n"}
	first := ptx.Translate(folder, source)
	if errors.Is(first, metal.ErrUnavailable) {
		t.Skip(first)
	}
	again := ptx.Translate(folder, source)
	if !errors.Is(again, metal.ErrCompile) || again.Error() != first.Error() || !strings.Contains(first.Error(), "broken.metal:2:") {
		t.Errorf("first: %v\nagain: %v", first, again)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "*")); !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, ".json") }) {
		t.Error("nothing was kept")
	}
	if err := ptx.Translate(folder, metal.Source{Name: "calls.metal", Text: "kernel void k(device float *x [[buffer(0)]]) { x[0] = __builtin_acosf(x[0]); }\n"}); !errors.Is(err, metal.ErrCompile) || !strings.Contains(err.Error(), "acos") {
		t.Errorf("a function that this device does not have: %v", err)
	}
}
