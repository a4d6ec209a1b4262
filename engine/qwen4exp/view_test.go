package qwen4exp_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/qwen4exp"
)

func TestViewsOfTheLastChunk(t *testing.T) {
	e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{})
	defer e.Close()
	ctx := context.Background()
	s, err := e.Sequence(100)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Observe(qwen4exp.Debug{Logits: true, Wide: true, Route: true, Blocks: true}); err != nil {
		t.Fatal(err)
	}
	tokens := sample(60)
	if _, err := s.Prefill(ctx, tokens[:50], nil); err != nil {
		t.Fatal(err)
	}
	row, err := s.LogitsAt(49)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := read(t, e, tokens[:50], 50).Logits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(row, whole) {
		t.Error("the view's last row is not the sequence's logits")
	}
	// 50 tokens are past tiny's budget of 32: a row sees 8 blocks of 4 and its incomplete tail block.
	visible, err := s.VisibleAt(3, 49)
	if err != nil {
		t.Fatal(err)
	}
	if len(visible) != 32+2 || visible[len(visible)-1] != 49 {
		t.Errorf("row 49 sees %v", visible)
	}
	if visible, err = s.VisibleAt(3, 9); err != nil || len(visible) != 10 {
		t.Errorf("row 9 sees %v, %v", visible, err)
	}
	ids, weights, err := s.RouteAt(0, 7)
	if err != nil || len(ids) != 2 || len(weights) != 2 {
		t.Errorf("route %v %v, %v", ids, weights, err)
	}
	if _, err := s.WideAt(8, 49); err != nil {
		t.Error(err)
	}

	if _, err := s.Prefill(ctx, tokens[50:], nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LogitsAt(10); !errors.Is(err, qwen4exp.ErrReleased) || !strings.Contains(err.Error(), "position 10") {
		t.Errorf("a view of the chunk before: %v", err)
	}
	s.Close()
	if _, err := s.LogitsAt(55); !errors.Is(err, qwen4exp.ErrReleased) {
		t.Errorf("a view after Close: %v", err)
	}
}

func TestAlteredSequencesDoNotExport(t *testing.T) {
	e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{})
	defer e.Close()
	ctx := context.Background()
	for name, d := range map[string]qwen4exp.Debug{
		"mixer": {Skip: []string{"mixer"}}, "experts": {Skip: []string{"experts"}}, "ple": {Skip: []string{"ple"}}, "cap": {Layers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := e.Sequence(64)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Observe(d); err != nil {
				t.Fatal(err)
			}
			step, err := s.Prefill(ctx, sample(20), nil)
			if err != nil {
				t.Fatal(err)
			}
			plain := read(t, e, sample(20), 20)
			probe, err := plain.Probe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Equal(step.Top, probe.Top) {
				t.Error("the part makes no difference")
			}
			if _, err := s.Regions(); !errors.Is(err, engine.ErrState) {
				t.Errorf("exported: %v", err)
			}
		})
	}
	s, err := e.Sequence(64)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Observe(qwen4exp.Debug{Skip: []string{"attention"}}); err == nil || !strings.Contains(err.Error(), "mixer") {
		t.Errorf("an unknown part: %v", err)
	}
}

func TestRowsFitTheBudget(t *testing.T) {
	e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{})
	defer e.Close()
	for _, budget := range []int{2 << 20, 5 << 20, 40 << 20} {
		rows, err := e.RowsFit(budget, false)
		if err != nil {
			t.Fatal(err)
		}
		if need := qwen4exp.ChunkBytes(e, rows, false); need > budget {
			t.Errorf("%d rows need %d of %d bytes", rows, need, budget)
		}
		if need := qwen4exp.ChunkBytes(e, rows+1, false); need <= budget && rows < qwen4exp.MaxRows {
			t.Errorf("%d rows would fit %d bytes, %d are allowed", rows+1, budget, rows)
		}
		views, err := e.RowsFit(budget, true)
		if err != nil || views >= rows {
			t.Errorf("with all logits %d rows, without %d, %v", views, rows, err)
		}
	}
	if _, err := e.RowsFit(1000, false); !errors.Is(err, engine.ErrMemory) {
		t.Errorf("a budget of 1000 bytes: %v", err)
	}
	small := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{Memory: 2 << 20})
	defer small.Close()
	if _, err := small.Sequence(0); !errors.Is(err, engine.ErrMemory) {
		t.Errorf("a sequence whose state does not fit beside the scratch: %v", err)
	}
	s, err := small.Sequence(small.Info().MaxChunk + 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Prefill(context.Background(), sample(small.Info().MaxChunk+1), nil); !errors.Is(err, engine.ErrTooLong) {
		t.Errorf("a chunk beyond the scratch: %v", err)
	}
}

// Scratch that is given back comes again with the next chunk, and nothing of it is in the result.
func TestScratchIsReleased(t *testing.T) {
	e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{})
	defer e.Close()
	want := read(t, e, sample(40), 40)
	s := read(t, e, sample(20), 20)
	e.ReleaseScratch()
	if _, err := s.Prefill(context.Background(), sample(40)[20:], nil); err != nil {
		t.Fatal(err)
	}
	sameState(t, s, want)
}
