package oracle_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/cpu"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
)

const fixtures = "../../tests/fixtures"

// modelOf says which checkpoint a fixture ran on.
func modelOf(name string) string {
	switch name {
	case "tiny-long":
		return filepath.Join(fixtures, "tiny")
	case "nano-text":
		return "../nano"
	}
	return filepath.Join(fixtures, name)
}

func opener(t *testing.T, dir, class string) oracle.Open {
	return openerOf(t, dir, class, qwen4exp.Options{})
}

func openerOf(t *testing.T, dir, class string, opt qwen4exp.Options) oracle.Open {
	t.Helper()
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(norm qwen4exp.HiddenNorm) (*qwen4exp.Engine, error) {
		opt.HiddenNorm = norm
		return qwen4exp.Open(c, cpu.New(cpu.Options{Class: class}), opt)
	}
}

func TestFixtures(t *testing.T) {
	for _, tc := range []struct {
		name  string
		chunk int
	}{
		{"tiny", 150}, {"tiny", 7}, {"tiny", 1}, {"tiny-long", 700}, {"tiny-long", 96}, {"odd", 150}, {"odd", 13},
		{"tiny-mlx-folded", 64}, {"tiny-mlx-plain", 50}, {"nano-text", 564}, {"nano-text", 100},
	} {
		for _, class := range cpu.Classes() {
			t.Run(class+"/"+tc.name, func(t *testing.T) {
				if lacks := cpu.Lacks(class); lacks != "" {
					t.Skipf("no such device here: a processor with %s, without which the class takes minutes", lacks)
				}
				met(t, tc.name, class, tc.chunk)
			})
		}
	}
}

func met(t *testing.T, fixture, class string, chunk int) {
	t.Helper()
	x, err := oracle.Load(filepath.Join(fixtures, fixture, "oracle.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	report, err := x.Check(context.Background(), opener(t, modelOf(fixture), class), chunk)
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() || testing.Verbose() {
		var b strings.Builder
		report.Print(&b)
		t.Log("\n" + b.String())
	}
	if !report.OK() {
		t.Error("the fixture is not met")
	}
}

// A comparison that cannot fail proves nothing: a wrong checkpoint must be caught.
func TestCatchesAnotherModel(t *testing.T) {
	x, err := oracle.Load(filepath.Join(fixtures, "tiny", "oracle.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	report, err := x.Check(context.Background(), opener(t, filepath.Join(fixtures, "tiny-mlx-folded"), cpu.Blocked), 64)
	if err != nil {
		t.Fatal(err)
	}
	if report.OK() {
		t.Error("weights of tiny-mlx-folded pass as tiny")
	}
}

func TestRefusesDamagedFixture(t *testing.T) {
	dir := t.TempDir()
	if _, err := oracle.Load(filepath.Join(dir, "oracle.safetensors")); err == nil {
		t.Error("a missing fixture loads")
	}
	for name, text := range map[string]string{"oracle.json": "{", "oracle.safetensors": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := oracle.Load(filepath.Join(dir, "oracle.safetensors")); err == nil {
		t.Error("a damaged fixture loads")
	}
}

// Caches that round meet the fixtures within the bounds of their codec.
func TestFixturesWithRoundedRows(t *testing.T) {
	for _, kv := range []qwen4exp.KV{qwen4exp.KVF16, qwen4exp.KVQ8} {
		for _, name := range []string{"tiny", "odd", "tiny-mlx-plain", "nano-text"} {
			t.Run(name+" "+string(kv), func(t *testing.T) {
				x, err := oracle.Load(filepath.Join(fixtures, name, "oracle.safetensors"))
				if err != nil {
					t.Fatal(err)
				}
				opt := qwen4exp.Options{KV: kv}
				report, err := x.CheckWithin(context.Background(), openerOf(t, modelOf(name), cpu.Rounded, opt), 64, oracle.BoundsOf("cpu-f32", opt.Codec()).Free)
				if err != nil {
					t.Fatal(err)
				}
				if !report.OK() {
					var b strings.Builder
					report.Print(&b)
					t.Error("the fixture is not met:\n" + b.String())
				}
			})
		}
	}
}
