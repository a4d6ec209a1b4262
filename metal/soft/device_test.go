package soft_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"lector/metal"
	"lector/metal/metaltest"
	"lector/metal/soft"
)

// Without a compiler the error says what to install.
func TestUnavailable(t *testing.T) {
	d, err := soft.Open(soft.Options{Cache: t.TempDir(), Compiler: "no-such-compiler"})
	if !errors.Is(err, metal.ErrUnavailable) || d != nil {
		t.Fatalf("open without a compiler: %v", err)
	}
	if runtime.GOOS == "linux" && !strings.Contains(err.Error(), soft.Install) {
		t.Errorf("the error does not say what to install: %v", err)
	}
}

// Several devices may fill one cache at once, and what is in it is used again.
func TestCache(t *testing.T) {
	open(t, soft.Options{}) // skips without a compiler
	folder := filepath.Join(t.TempDir(), "made", "as", "needed")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			d, err := soft.Open(soft.Options{Cache: folder})
			if err != nil {
				t.Error(err)
				return
			}
			l, err := d.Compile(metaltest.Source())
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(l.Close(), d.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	before := names(t, folder)
	if len(before) != 3 { // the runtime, the kernels, and what is in them
		t.Errorf("the cache holds %q", before)
	}
	d := open(t, soft.Options{Cache: folder})
	l, err := d.Compile(metaltest.Source())
	if err != nil {
		t.Fatal(err)
	}
	if l.Kernels()[0] != "suite_block" {
		t.Errorf("kernels from the cache: %q", l.Kernels())
	}
	changed := metaltest.Source()
	changed.FastMath = true
	l2, err := d.Compile(changed)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), l2.Close()); err != nil {
		t.Error(err)
	}
	if after := names(t, folder); len(after) != len(before)+2 {
		t.Errorf("after other flags the cache holds %q", after)
	}
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestMemoryLimit(t *testing.T) {
	d := open(t, soft.Options{MemoryBytes: 1 << 20})
	first, err := d.NewBuffer(700 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.NewBuffer(400 << 10); !errors.Is(err, metal.ErrMemory) {
		t.Errorf("a buffer beyond the limit: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := d.NewBuffer(400 << 10)
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// The check build keeps address spaces apart, looks into templates, and refuses what Metal has not.
func TestCheckRefuses(t *testing.T) {
	const head = "#include <metal_stdlib>\nusing namespace metal;\n"
	for name, body := range map[string]string{
		"spaces":            "kernel void k(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {\n threadgroup float s[32];\n device float *p = s;\n p[i] = x[i];\n}\n",
		"function pointers": "static float f(float x) { return x; }\nkernel void k(device float *x [[buffer(0)]]) {\n float (*p)(float) = f;\n x[0] = p(1);\n}\n",
		"templates": "template <typename T> kernel void k(device T *x [[buffer(0)]]) {\n\n x[0].absent = 1;\n}\n" +
			"template [[host_name(\"kf\")]] [[kernel]] decltype(k<float>) k<float>;\n",
		"names": "kernel void k(device float *x [[buffer(0)]]) {\n\n x[0] = absent;\n}\n",
	} {
		err := soft.Check(metal.Source{Name: "wrong.metal", Text: head + body})
		if errors.Is(err, metal.ErrUnavailable) {
			t.Skipf("no compiler: %v", err)
		}
		if !errors.Is(err, metal.ErrCompile) || !strings.Contains(err.Error(), "wrong.metal:5") {
			t.Errorf("%s: want ErrCompile at wrong.metal:5, got %v", name, err)
		}
	}
}

// Fibers live with the collector and with preemption while several queues launch.
func TestStress(t *testing.T) {
	b := newShim(t, soft.Options{})
	in, out := b.buffer(t, 4*512), b.buffer(t, 4*512*16)
	stop := make(chan struct{})
	var garbage sync.WaitGroup
	garbage.Go(func() {
		var kept [][]byte
		for {
			select {
			case <-stop:
				return
			default:
				kept = append(kept, make([]byte, 1<<14))
				if len(kept) > 100 {
					kept = nil
					runtime.GC()
				}
			}
		}
	})
	for range 30 {
		if err := b.run(t, "shim_math", 16, 32, in, out); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	garbage.Wait()
}
