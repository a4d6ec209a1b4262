package bench_test

import (
	"context"
	"errors"
	"testing"

	"lector/engine/bench"
	"lector/engine/cpu"
	"lector/engine/ops"
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

func TestMeasureRead(t *testing.T) {
	c := bench.Ceiling{Workers: 2}
	if err := c.MeasureRead(cpu.New(cpu.Options{})); err != nil {
		t.Fatal(err)
	}
	if len(c.Read) == 0 || c.BytesPerSecond() <= 0 {
		t.Errorf("%v bytes a second", c.Read)
	}
	if err := c.MeasureRead(noSlots{}); !errors.Is(err, errSlots) {
		t.Errorf("a backend without memory: %v", err)
	}
}

func TestMeasureHandoff(t *testing.T) {
	alone := bench.Ceiling{Workers: 1}
	alone.MeasureHandoff()
	if len(alone.Handoff) != 0 || alone.HandoffSeconds() != 0 {
		t.Errorf("one worker hands over in %v", alone.Handoff)
	}
	c := bench.Ceiling{Workers: 2}
	c.MeasureHandoff()
	for _, s := range c.Handoff {
		if s <= 0 || c.HandoffSeconds() <= 0 {
			t.Errorf("handed over in %v", c.Handoff)
		}
	}
}

var errSlots = errors.New("no memory")

// noSlots has none.
type noSlots struct{ ops.Backend }

func (noSlots) AllocSlots(int, int) (ops.Slots, error) { return ops.Slots{}, errSlots }
