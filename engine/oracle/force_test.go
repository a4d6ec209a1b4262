package oracle_test

import (
	"context"
	"testing"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/ops"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
)

// openOn opens a fixture's model on the CPU.
func openOn(t *testing.T, name string, opt qwen4exp.Options) oracle.OpenOn {
	t.Helper()
	c, err := weights.Open(modelOf(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(wrap func(ops.Backend) ops.Backend) (*qwen4exp.Engine, error) {
		return qwen4exp.Open(c, wrap(cpu.New(cpu.Options{})), opt)
	}
}

// A run that is held to its own choices is itself; one that rounds is off by that; another model is not near.
func TestForced(t *testing.T) {
	tokens := make([]engine.Token, 90)
	for i := range tokens {
		tokens[i] = engine.Token(i * i * 7 % 300)
	}
	exact := openOn(t, "tiny", qwen4exp.Options{})
	for _, c := range []struct {
		name  string
		other oracle.OpenOn
		bound float64
		want  bool
	}{
		{"itself", exact, 1e-6, true},
		{"halves", openOn(t, "tiny", qwen4exp.Options{KV: qwen4exp.KVF16}), oracle.BoundsOf("cpu-f32", "kv-f16").Forced, true},
		{"codes", openOn(t, "tiny", qwen4exp.Options{KV: qwen4exp.KVQ8}), oracle.BoundsOf("cpu-f32", "kv-q8").Forced, true},
		{"codes pass for halves", openOn(t, "tiny", qwen4exp.Options{KV: qwen4exp.KVQ8}), oracle.BoundsOf("cpu-f32", "kv-f16").Forced, false},
		{"another model", openOn(t, "tiny-mlx-folded", qwen4exp.Options{}), 1e-2, false},
	} {
		report, err := oracle.Forced(context.Background(), exact, c.other, tokens, 40, c.bound)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if report.OK() != c.want {
			t.Errorf("%s: passes: %v, want %v: %+v", c.name, report.OK(), c.want, report.Lines)
		}
	}
	if _, err := oracle.Forced(context.Background(), exact, openOn(t, "tiny-mlx-plain", qwen4exp.Options{}), tokens, 40, 1); err == nil {
		t.Error("a model without a head, which makes fewer choices, is compared")
	}
}
