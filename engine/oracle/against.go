package oracle

import (
	"context"
	"fmt"
	"math"
	"slices"

	"lector/engine"
	"lector/engine/qwen4exp"
)

// Against runs the same tokens on a reference engine and on the engine under test and compares the logits of the
// last row and every region of the state, by relative L2, and the greedy text of some more tokens. bound is what
// the relative L2 of a line may be. A flipped choice at a small margin may cost more than the arithmetic does, so a
// half-staged class needs a wider bound than its products.
func Against(ctx context.Context, reference, subject *qwen4exp.Engine, tokens []engine.Token, bound float64) (Report, error) {
	want, err := runOn(ctx, reference, tokens)
	if err != nil {
		return Report{}, fmt.Errorf("run the reference: %w", err)
	}
	got, err := runOn(ctx, subject, tokens)
	if err != nil {
		return Report{}, err
	}
	var r Report
	r.Lines = got.against(want, bound)
	text := Line{Name: "greedy", Compared: len(want.text)}
	for i, id := range want.text {
		if i >= len(got.text) || got.text[i] != id {
			text.Wrong, text.First = 1, fmt.Sprintf("token %d differs", i)
			break
		}
	}
	r.Lines = append(r.Lines, text)
	return r, nil
}

// afterRun is what an engine says of the tokens.
type afterRun struct {
	logits  []float32
	regions []engine.Region
	text    []engine.Token
}

// against compares logits and every region, by relative L2.
func (got afterRun) against(want afterRun, bound float64) []Line {
	lines := []Line{relative("logits", got.logits, want.logits, bound)}
	for i, w := range want.regions {
		if !compared(w) {
			continue
		}
		at := slices.IndexFunc(got.regions, func(r engine.Region) bool { return r.Name == w.Name })
		if at < 0 {
			lines = append(lines, Line{Name: w.Name, First: "the engine has no such region"})
			continue
		}
		lines = append(lines, relative(w.Name, Numbers(got.regions, at), Numbers(want.regions, i), bound))
	}
	return lines
}

// greedyTokens is how many tokens Against decodes.
const greedyTokens = 12

func runOn(ctx context.Context, e *qwen4exp.Engine, tokens []engine.Token) (afterRun, error) {
	var out afterRun
	s, err := e.Sequence(len(tokens) + greedyTokens + engine.MaxDrafts)
	if err != nil {
		return out, err
	}
	defer s.Close()
	for from := 0; from < len(tokens); from += e.Info().MaxChunk {
		if _, err := s.Prefill(ctx, tokens[from:min(from+e.Info().MaxChunk, len(tokens))], nil); err != nil {
			return out, err
		}
	}
	if out.logits, err = s.Logits(ctx); err != nil {
		return out, err
	}
	lent, err := s.Regions()
	if err != nil {
		return out, err
	}
	for _, r := range lent {
		r.Data = append([]byte(nil), r.Data...)
		out.regions = append(out.regions, r)
	}
	next := largest(0, out.logits)
	for len(out.text) < greedyTokens {
		out.text = append(out.text, next)
		d, err := s.Decode(ctx, []engine.Token{next}, largest)
		if err != nil {
			return out, err
		}
		next = d.Chosen[0]
	}
	return out, nil
}

// relative is the relative L2 distance of two tensors as a line.
func relative(name string, got, want []float32, bound float64) Line {
	line := Line{Name: name, Compared: len(want), Limit: bound}
	if len(got) != len(want) {
		line.Wrong, line.First = 1, fmt.Sprintf("%d numbers for %d", len(got), len(want))
		return line
	}
	var off, size float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		off += d * d
		size += float64(want[i]) * float64(want[i])
	}
	if line.Diff = math.Sqrt(off); size > 0 {
		line.Diff = math.Sqrt(off / size)
	}
	return line
}
