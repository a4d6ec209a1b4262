package bench_test

import (
	"context"
	"testing"

	"lector/engine/bench"
	"lector/engine/cpu"
)

// What is measured is positive; nothing is said about how fast a machine is.
func TestMeasureGEMM(t *testing.T) {
	var c bench.Ceiling
	if err := c.MeasureGEMM(context.Background(), cpu.New(cpu.Options{})); err != nil {
		t.Fatal(err)
	}
	for _, g := range c.GEMM {
		for _, s := range g.Samples {
			if s <= 0 {
				t.Errorf("%dx%dx%d: %v", g.M, g.N, g.K, g.Samples)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.MeasureGEMM(ctx, cpu.New(cpu.Options{})); err == nil {
		t.Error("a cancelled measurement went on")
	}
}
