package qwen4exp_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/qwen4exp"
)

// Any cut of a prompt into chunks gives the same state and logits, bit for bit, and so does decoding it, or stopping
// anywhere and going on elsewhere, whatever holds the state.
func TestAnyCutGivesTheSameBits(t *testing.T) {
	for _, c := range []struct {
		model, class string
		opt          qwen4exp.Options
	}{
		{"tiny", cpu.Rounded, qwen4exp.Options{}}, {"odd", cpu.Rounded, qwen4exp.Options{}},
		{"tiny-mlx-folded", cpu.Blocked, qwen4exp.Options{}}, {"tiny-mlx-plain", cpu.Blocked, qwen4exp.Options{KV: qwen4exp.KVF16}},
		{"tiny", cpu.Rounded, qwen4exp.Options{KV: qwen4exp.KVQ8, State: qwen4exp.StateBF16}},
		{"tiny-mlx-folded", cpu.BFP, qwen4exp.Options{}}, {"tiny-mlx-plain", cpu.BFP, qwen4exp.Options{KV: qwen4exp.KVQ8}},
	} {
		t.Run(c.model+"/"+c.class+"/"+c.opt.Codec(), func(t *testing.T) {
			if lacks := cpu.Lacks(c.class); lacks != "" {
				t.Skipf("no such device here: a processor with %s, without which the class takes minutes", lacks)
			}
			be := &flaky{Backend: cpu.New(cpu.Options{Class: c.class}), grid: cellTokens}
			e := open(t, c.model, be, c.opt)
			defer e.Close()
			tokens := sample(70)
			want := read(t, e, tokens, len(tokens))
			wantLogits, err := want.Logits(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			checks := 0
			rapid.Check(t, func(rt *rapid.T) {
				if checks++; checks > 8 {
					return // the network is slow in plain Go; eight cuts a run, others the next time
				}
				s, err := e.Sequence(len(tokens) + 8)
				if err != nil {
					rt.Fatal(err)
				}
				defer func() { s.Close() }()
				for at := 0; at < len(tokens); {
					if at > 0 && rapid.IntRange(0, 3).Draw(rt, "stop") == 0 {
						s = moved(t, e, s)
					}
					n := rapid.IntRange(1, len(tokens)-at).Draw(rt, "chunk")
					if n == 1 && rapid.Bool().Draw(rt, "decode") {
						_, err = s.Decode(context.Background(), tokens[at:at+1], largest)
					} else {
						_, err = s.Prefill(context.Background(), tokens[at:at+n], nil)
					}
					if err != nil {
						rt.Fatal(err)
					}
					at += n
				}
				got, err := s.Logits(context.Background())
				if err != nil {
					rt.Fatal(err)
				}
				if fmt.Sprint(got) != fmt.Sprint(wantLogits) {
					rt.Fatal("logits differ")
				}
				sameState(t, s, want)
			})
		})
	}
}

func largest(_ engine.Pos, logits []float32) engine.Token {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return engine.Token(best)
}

// A batch whose first k drafts are right and the others wrong commits exactly k+1 tokens, and leaves every kind
// of state as if only those had been decoded: across a block's end, an end-of-text, and the indexer's budget.
func TestRejectedDraftsRollBackEveryState(t *testing.T) {
	e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{})
	defer e.Close()
	ctx := context.Background()
	for _, start := range []int{1, 2, 30, 33, 57} {
		tokens := sample(start)
		plain := read(t, e, tokens, start)
		greedy := continuation(t, plain, 4)
		for right := range 4 {
			s := read(t, e, tokens, start)
			batch := append([]engine.Token(nil), greedy[:4]...)
			for i := right + 1; i < 4; i++ {
				batch[i] = (batch[i] + 1) % 300
			}
			out, err := s.Decode(ctx, batch, largest)
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Chosen) != right+1 || int(s.Pos()) != start+right+1 {
				t.Fatalf("start %d: %d drafts are right, %d tokens committed", start, right, len(out.Chosen))
			}
			want := read(t, e, tokens, start)
			for _, id := range greedy[:right+1] {
				if _, err := want.Decode(ctx, []engine.Token{id}, largest); err != nil {
					t.Fatal(err)
				}
			}
			sameState(t, s, want)
		}
	}
}

// continuation decodes n greedy tokens after s, one by one.
func continuation(t *testing.T, s *qwen4exp.Sequence, n int) []engine.Token {
	t.Helper()
	logits, err := s.Logits(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := []engine.Token{largest(0, logits)}
	for len(out) < n {
		d, err := s.Decode(context.Background(), out[len(out)-1:], largest)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d.Chosen[0])
	}
	return out
}

// The exported state never depends on the token that a caller says comes next; only the step's draft does.
func TestNextTokenIsNoPartOfTheState(t *testing.T) {
	e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{})
	defer e.Close()
	tokens := sample(20)
	want := read(t, e, tokens, 20)
	s, err := e.Sequence(64)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	next := engine.Token(7)
	step, err := s.Prefill(context.Background(), tokens, &next)
	if err != nil {
		t.Fatal(err)
	}
	sameState(t, s, want)
	drafts, err := want.Draft(context.Background(), next, 1)
	if err != nil {
		t.Fatal(err)
	}
	if step.Draft != drafts[0] {
		t.Errorf("draft %d after the given token, %d by Draft", step.Draft, drafts[0])
	}
}

// Both readings of the hidden norm give the same text and another identity.
func TestHiddenNormChangesDraftsAlone(t *testing.T) {
	be := cpu.New(cpu.Options{})
	grouped := open(t, "tiny", be, qwen4exp.Options{HiddenNorm: qwen4exp.Grouped})
	flat := open(t, "tiny", be, qwen4exp.Options{HiddenNorm: qwen4exp.Flat})
	tokens := sample(25)
	a, b := read(t, grouped, tokens, 25), read(t, flat, tokens, 25)
	if fmt.Sprint(continuation(t, a, 6)) != fmt.Sprint(continuation(t, b, 6)) {
		t.Error("the text differs")
	}
	x, err := grouped.Identity()
	if err != nil {
		t.Fatal(err)
	}
	y, err := flat.Identity()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(x) == fmt.Sprint(y) {
		t.Error("both have one identity")
	}
}
