package soft_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"lector/metal"
	"lector/metal/metaltest"
	"lector/metal/soft"
)

// cache is the folder that the tests of this package share.
var cache string

func TestMain(m *testing.M) {
	code := 1
	defer func() { os.Exit(code) }()
	var err error
	if cache, err = os.MkdirTemp("", "lector-soft-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer os.RemoveAll(cache)
	code = m.Run()
}

// open makes a device, or skips the test where clang is missing.
func open(t *testing.T, o soft.Options) metal.Device {
	t.Helper()
	if o.Cache == "" {
		o.Cache = cache
	}
	d, err := soft.Open(o)
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skipf("no soft device: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// check checks a source that must pass, or skips the test where clang is missing.
func check(t *testing.T, source metal.Source) {
	t.Helper()
	err := soft.Check(source)
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skipf("no compiler: %v", err)
	}
	if err != nil {
		t.Errorf("check %s: %v", source.Name, err)
	}
}

// The suite passes in every mode and under five schedules.
func TestConformance(t *testing.T) {
	for name, o := range map[string]soft.Options{
		"plain":     {},
		"reverse":   {Seed: 1},
		"random":    {Seed: 7, Workers: 3},
		"random 2":  {Seed: 2, Workers: 1},
		"random 3":  {Seed: 3},
		"race":      {Mode: soft.Race},
		"undefined": {Mode: soft.Undefined, Seed: 12345},
	} {
		t.Run(name, func(t *testing.T) {
			metaltest.Run(t, func(t *testing.T) metal.Device { return open(t, o) })
		})
	}
	check(t, metaltest.Source())
}

// patience is how long tests wait for what must come.
const patience = 30 * time.Second
