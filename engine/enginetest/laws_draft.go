package enginetest

import (
	"testing"

	"lector/engine"
)

// generate goes on greedily for n tokens with up to drafts drafts a step. The last of them is not consumed.
func (b *bench) generate(seq engine.Sequence, n, drafts int) []engine.Token {
	b.Helper()
	logits, err := seq.Logits(b.Context())
	if err != nil {
		b.Fatalf("logits: %v", err)
	}
	out := []engine.Token{argmax(logits)}
	for len(out) < n {
		batch := []engine.Token{out[len(out)-1]}
		if k := min(drafts, n-len(out)-1); k > 0 {
			more, err := seq.Draft(b.Context(), batch[0], k)
			if err != nil {
				b.Fatalf("draft %d tokens: %v", k, err)
			}
			if len(more) > k {
				b.Fatalf("asked for %d drafts, got %v", k, more)
			}
			batch = append(batch, more...)
		}
		before := seq.Pos()
		got, err := seq.Decode(b.Context(), batch, greedy)
		if err != nil {
			b.Fatalf("decode: %v", err)
		}
		if len(got.Chosen) == 0 || int(seq.Pos()-before) != len(got.Chosen) || got.Stats.Tokens != len(got.Chosen) {
			b.Fatalf("decode chose %v, moved from %d to %d and counted %d", got.Chosen, before, seq.Pos(), got.Stats.Tokens)
		}
		out = append(out, got.Chosen...)
	}
	return out
}

// lawDrafts: promise 4 of package engine.
func lawDrafts(t *testing.T, s Suite) {
	b := newBench(t, s)
	const n = 24
	tokens := s.Tokens(s.Length)
	plain, _ := b.read(tokens)
	want := b.generate(plain, n, 0)
	for drafts := 1; drafts <= engine.MaxDrafts; drafts++ {
		seq, _ := b.read(tokens)
		if got := b.generate(seq, n, drafts); !equal(got, want) {
			t.Fatalf("with %d drafts the text is %v, without %v", drafts, got, want)
		}
		b.same("generated with drafts", b.state(seq), b.state(plain))
	}
	seq, _ := b.read(tokens)
	if _, err := seq.Decode(b.Context(), s.Tokens(engine.MaxDrafts+2), greedy); err == nil {
		t.Error("more drafts than the most were taken")
	}
}

// lawRejected decodes with drafts that are wrong from the i-th on; the state must be that of a sequence that
// never saw them.
func lawRejected(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	truth, _ := b.read(tokens)
	text := b.generate(truth, engine.MaxDrafts+2, 0)
	v := engine.Token(b.engine.Info().Vocabulary)
	for good := 0; good <= engine.MaxDrafts; good++ {
		batch := append([]engine.Token{}, text[:engine.MaxDrafts+1]...)
		for i := good + 1; i < len(batch); i++ {
			batch[i] = (batch[i] + 1) % v
		}
		seq, _ := b.read(tokens)
		got, err := seq.Decode(b.Context(), batch, greedy)
		if err != nil {
			t.Fatalf("decode with %d right drafts: %v", good, err)
		}
		if !equal(got.Chosen, text[1:good+2]) {
			t.Fatalf("with %d right drafts %v was chosen, want %v", good, got.Chosen, text[1:good+2])
		}
		never, _ := b.read(append(append([]engine.Token{}, tokens...), text[:good+1]...))
		b.same("after rejected drafts", b.state(seq), b.state(never))
		b.prefill(seq, tokens[:3])
		b.prefill(never, tokens[:3])
		b.same("gone on after rejected drafts", b.state(seq), b.state(never))
	}
}

func lawDraft(t *testing.T, s Suite) {
	b := newBench(t, s)
	seq, step := b.read(s.Tokens(s.Length))
	was, stats := b.state(seq), seq.Stats()
	first, err := seq.Draft(b.Context(), step.Next, engine.MaxDrafts)
	if err != nil {
		t.Fatalf("draft: %v", err)
	}
	if len(first) == 0 || first[0] != step.Draft {
		t.Errorf("drafts are %v, the step's was %d", first, step.Draft)
	}
	other := (step.Next + 1) % engine.Token(b.engine.Info().Vocabulary)
	if _, err := seq.Draft(b.Context(), other, 1); err != nil {
		t.Fatalf("draft after another token: %v", err)
	}
	again, err := seq.Draft(b.Context(), step.Next, engine.MaxDrafts)
	if err != nil || !equal(again, first) {
		t.Errorf("drafts are %v the second time (%v), %v the first", again, err, first)
	}
	_, err = seq.Draft(b.Context(), engine.Token(b.engine.Info().Vocabulary), 1)
	b.wantError("draft after a token that is none", err, engine.ErrToken)
	b.same("after drafting", b.state(seq), was)
	if got := seq.Stats(); got.Tokens != stats.Tokens {
		t.Errorf("drafting counted %d tokens", got.Tokens-stats.Tokens)
	}
}
