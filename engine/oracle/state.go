package oracle

import (
	"context"
	"fmt"
	"strings"

	"lector/engine"
	"lector/engine/qwen4exp"
)

// state compares every exported region with the fixture's state. The fixture lays convolution tails out
// channel by channel, [C, taps]; lector keeps them row by row, [taps, C].
func (c *comparison) state(s *qwen4exp.Sequence) error {
	regions, err := s.Regions()
	if err != nil {
		return err
	}
	for i, r := range regions {
		name := r.Name
		if !strings.HasPrefix(name, "mtp.") {
			name = "state." + strings.TrimPrefix(name, "layers.")
		}
		want, ok := c.tensor(name)
		if !ok {
			continue
		}
		got := Numbers(regions, i)
		if strings.HasSuffix(name, "conv") {
			if got, err = transpose(got, r.Shape, want.shape); err != nil {
				return fmt.Errorf("compare %s: %w", name, err)
			}
		}
		c.gauge(name).numbers(got, want.floats, name)
	}
	return nil
}

// transpose turns [rows, cols] into [cols, rows], the shape of want.
func transpose(x []float32, shape, want []int) ([]float32, error) {
	rows, cols := shape[0], shape[1]
	if len(want) != 2 || want[0] != cols || want[1] != rows {
		return nil, fmt.Errorf("%w: %v for %v", errShape, want, shape)
	}
	out := make([]float32, len(x))
	for r := range rows {
		for k := range cols {
			out[k*rows+r] = x[r*cols+k]
		}
	}
	return out, nil
}

// continuation compares the greedy text, the head's draft after each token, and the chained drafts.
func (c *comparison) continuation(ctx context.Context, s *qwen4exp.Sequence, step engine.Step) error {
	want := c.x.report
	if !c.head {
		want.Chain, want.Drafts = nil, nil
	}
	if len(want.Chain) > 0 {
		got, err := s.Draft(ctx, step.Next, min(len(want.Chain), engine.MaxDrafts))
		if err != nil {
			return err
		}
		choices(c.gauge("mtp_chain"), got, wide(want.Chain), "draft")
	}
	if err := s.Observe(qwen4exp.Debug{}); err != nil {
		return err
	}
	var greedy, drafts []engine.Token
	next := step.Next
	for range want.Greedy {
		greedy = append(greedy, next)
		if len(want.Drafts) > 0 {
			d, err := s.Draft(ctx, next, 1)
			if err != nil {
				return err
			}
			drafts = append(drafts, d[0])
		}
		got, err := s.Decode(ctx, []engine.Token{next}, largest)
		if err != nil {
			return err
		}
		next = got.Chosen[0]
	}
	choices(c.gauge("greedy"), greedy, wide(want.Greedy), "token")
	if len(want.Drafts) > 0 {
		choices(c.gauge("mtp_drafts"), drafts, wide(want.Drafts), "draft")
	}
	return nil
}

// largest is the greedy choice, ties to the lower id.
func largest(_ engine.Pos, logits []float32) engine.Token {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return engine.Token(best)
}

func wide(ids []engine.Token) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}
