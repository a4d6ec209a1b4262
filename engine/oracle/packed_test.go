package oracle_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/cpu"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/engine/weights/pack"
)

// A packed store that keeps its source's precision meets the source's fixture, with a ring and little more.
func TestPackedFixtures(t *testing.T) {
	for _, tc := range []struct {
		name   string
		chunk  int
		memory int
		class  string
	}{
		{"tiny", 33, 6 << 20, cpu.Rounded}, {"odd", 150, 12 << 20, cpu.Blocked}, {"tiny-mlx-folded", 64, 0, cpu.Blocked}, {"tiny-mlx-plain", 50, 6 << 20, cpu.Rounded},
		{"nano-text", 100, 32 << 20, cpu.Rounded}, {"nano-text", 100, 32 << 20, cpu.Blocked},
	} {
		t.Run(tc.name+"/"+tc.class, func(t *testing.T) {
			source, err := weights.Open(modelOf(tc.name))
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			dir := filepath.Join(t.TempDir(), "store")
			if _, err := pack.Run(context.Background(), source, dir, pack.Options{Settings: pack.Settings{Group: 64}}); err != nil {
				t.Fatal(err)
			}
			c, err := weights.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			x, err := oracle.Load(filepath.Join(fixtures, tc.name, "oracle.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			report, err := x.Check(context.Background(), func(norm qwen4exp.HiddenNorm) (*qwen4exp.Engine, error) {
				return qwen4exp.Open(c, cpu.New(cpu.Options{Class: tc.class}), qwen4exp.Options{HiddenNorm: norm, Memory: tc.memory})
			}, tc.chunk)
			if err != nil {
				t.Fatal(err)
			}
			if !report.OK() {
				var b strings.Builder
				report.Print(&b)
				t.Error("\n" + b.String())
			}
		})
	}
}
