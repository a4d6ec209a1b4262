package enginetest

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"lector/engine"
)

func lawIdentity(t *testing.T, s Suite) {
	a, b := newBench(t, s), newBench(t, s)
	x, err := a.engine.Identity()
	if err != nil {
		t.Fatalf("identity: %v", err)
	}
	y, err := b.engine.Identity()
	if err != nil {
		t.Fatalf("identity again: %v", err)
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("two engines of one model say %+v and %+v", x, y)
	}
	if x.Class == "" || x.Grid < 1 || len(x.Fields) == 0 {
		t.Errorf("identity %+v lacks its class, grid or fields", x)
	}
	info := a.engine.Info()
	if info.Vocabulary < 1 || info.MaxTokens < 1 || info.MaxChunk < 1 {
		t.Errorf("model says %+v: every limit must be at least 1", info)
	}
	if info.DraftHead == s.SkipDrafts {
		t.Errorf("model says draft head %v, suite skips drafts %v", info.DraftHead, s.SkipDrafts)
	}
}

// lawCuts: promise 1 of package engine.
func lawCuts(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	whole, last := b.read(tokens)
	want := b.state(whole)
	b.sameProbe("step of the whole prompt", last.Probe, want.Probe)
	n := len(tokens)
	for _, cuts := range [][]int{{1}, {n - 1}, {n / 2}, {1, 2, 3, n/2 + 1}, {n / 3, 2 * n / 3}, ones(n)} {
		seq, step := b.read(tokens, cuts...)
		b.same("cut", b.state(seq), want)
		b.sameProbe("last step of a cut prompt", step.Probe, want.Probe)
	}
	seq := b.sequence(n)
	if _, err := seq.Prefill(b.Context(), tokens[:n/2], &tokens[n/2]); err != nil {
		t.Fatalf("prefill with the next token: %v", err)
	}
	wrong := (tokens[n/2] + 1) % engine.Token(b.engine.Info().Vocabulary)
	if _, err := seq.Prefill(b.Context(), tokens[n/2:n-1], &wrong); err != nil {
		t.Fatalf("prefill with a next token that does not come: %v", err)
	}
	b.prefill(seq, tokens[n-1:])
	b.same("next given", b.state(seq), want)
}

// ones cuts after every token.
func ones(n int) []int {
	var cuts []int
	for i := 1; i < n; i++ {
		cuts = append(cuts, i)
	}
	return cuts
}

func lawDecode(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	whole, _ := b.read(tokens)
	split := len(tokens) - min(8, len(tokens)-1)
	seq, _ := b.read(tokens[:split])
	for i, id := range tokens[split:] {
		var at engine.Pos
		out, err := seq.Decode(b.Context(), []engine.Token{id}, func(pos engine.Pos, logits []float32) engine.Token {
			at = pos
			return greedy(pos, logits)
		})
		if err != nil {
			t.Fatalf("decode token %d: %v", split+i, err)
		}
		if len(out.Chosen) != 1 || at != seq.Pos() || out.Stats.Tokens != 1 {
			t.Fatalf("decode of one row chose %v at %d and counted %d, sequence is at %d", out.Chosen, at, out.Stats.Tokens, seq.Pos())
		}
	}
	b.same("decoded", b.state(seq), b.state(whole))
	seq, _ = b.read(tokens[:split])
	twin, _ := b.read(tokens[:split])
	for i, id := range tokens[split:] {
		got, err := seq.Decode(b.Context(), []engine.Token{id}, nil)
		if err != nil {
			t.Fatalf("decode token %d without a choice: %v", split+i, err)
		}
		want, err := twin.Decode(b.Context(), []engine.Token{id}, greedy)
		if err != nil || !slices.Equal(got.Chosen, want.Chosen) {
			t.Fatalf("token %d: the engine's own greedy choice is %v, that of its logits %v: %v", split+i, got.Chosen, want.Chosen, err)
		}
	}
	b.same("decoded greedily", b.state(seq), b.state(whole))
}

func lawSizes(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	var before []engine.Region
	for _, n := range []int{1, 2, len(tokens)} { // at 1 a region with a lag of one row is empty
		seq, _ := b.read(tokens[:n])
		regions := b.regions(seq)
		perToken, fixed := 0, 0
		for i, r := range regions {
			want := r.RowBytes()
			if r.Kind == engine.Rows {
				want *= r.RowsAt(seq.Pos())
				perToken += r.RowBytes()
			} else {
				fixed += r.RowBytes()
			}
			if len(r.Data) != want {
				t.Errorf("region %s at %d has %d bytes, want %d", r.Name, n, len(r.Data), want)
			}
			if !slices.Contains([]string{"f32", "i32", "f16", "bf16", "i8"}, r.DType) {
				t.Errorf("region %s has type %q", r.Name, r.DType)
			}
			if before != nil && r.Kind == engine.Rows && string(r.Data[:len(before[i].Data)]) != string(before[i].Data) {
				t.Errorf("region %s changed rows that were written", r.Name)
			}
		}
		if info := b.engine.Info(); perToken != info.BytesPerToken || fixed != info.FixedBytes {
			t.Errorf("state has %d bytes a token and %d fixed, the model says %d and %d", perToken, fixed, info.BytesPerToken, info.FixedBytes)
		}
		before = regions
	}
}

// lawBadInput: promise 2 of package engine.
func lawBadInput(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	n := len(tokens)
	seq := b.sequence(n)
	b.prefill(seq, tokens[:n-2])
	want, stats := b.state(seq), seq.Stats()
	top := engine.Token(b.engine.Info().Vocabulary)
	cases := []struct {
		name   string
		tokens []engine.Token
		want   error
	}{
		{"empty", nil, engine.ErrEmpty},
		{"negative token", []engine.Token{tokens[0], -1}, engine.ErrToken},
		{"token at the vocabulary's size", []engine.Token{top}, engine.ErrToken},
		{"beyond capacity", tokens[:3], engine.ErrTooLong},
	}
	none, err := b.engine.NewSequence(b.engine.Info().MaxTokens + 1)
	b.wantError("a sequence beyond the model's limit", err, engine.ErrTooLong)
	if none != nil {
		t.Errorf("a refused sequence is %#v, want nil", none)
	}
	for _, c := range cases {
		_, err := seq.Prefill(b.Context(), c.tokens, nil)
		b.wantError("prefill "+c.name, err, c.want)
		if c.name == "beyond capacity" && s.SkipDrafts {
			continue
		}
		_, err = seq.Decode(b.Context(), c.tokens, greedy)
		b.wantError("decode "+c.name, err, c.want)
	}
	b.same("after refusals", b.state(seq), want)
	if got := seq.Stats(); got != stats {
		t.Errorf("refused chunks were counted: %+v, want %+v", got, stats)
	}
	b.prefill(seq, tokens[n-2:]) // exactly to capacity
	whole, _ := b.read(tokens)
	b.same("after refusals, to capacity", b.state(seq), b.state(whole))
}

// lawCancelled: promise 3 of package engine, by cancelling before the call and at chosen moments inside it.
func lawCancelled(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	half := len(tokens) / 2
	whole, _ := b.read(tokens)
	want := b.state(whole)
	before, _ := b.read(tokens[:half])
	stored := b.state(before)
	for _, looks := range []int{0, 1, 2, 3, 5, 8} {
		seq, _ := b.read(tokens[:half])
		stats := seq.Stats()
		_, err := seq.Prefill(newLateCancel(b.Context(), looks), tokens[half:], nil)
		if err == nil && looks == 0 {
			t.Fatal("a prefill with a cancelled context succeeded")
		}
		if err == nil {
			break // the call looks at its context less often than that
		}
		b.wantError("cancelled prefill", err, context.Canceled)
		b.afterFailure(seq, stored, stats)
		b.prefill(seq, tokens[half:])
		b.same("after a cancelled prefill", b.state(seq), want)
	}
}

// afterFailure checks that seq is as it was, or broken; a broken one is restored to what it was.
func (b *bench) afterFailure(seq engine.Sequence, was state, stats engine.ChunkStats) {
	b.Helper()
	if got := seq.Stats(); got != stats {
		b.Fatalf("a failed chunk was counted: %+v, want %+v", got, stats)
	}
	if _, err := seq.Regions(); err != nil {
		b.wantError("regions of a broken sequence", err, engine.ErrBroken)
		_, err = seq.Prefill(b.Context(), was.Tokens[:1], nil)
		b.wantError("prefill on a broken sequence", err, engine.ErrBroken)
		_, err = seq.Decode(b.Context(), was.Tokens[:1], greedy)
		b.wantError("decode on a broken sequence", err, engine.ErrBroken)
		_, err = seq.Logits(b.Context())
		b.wantError("logits of a broken sequence", err, engine.ErrBroken)
		_, err = seq.Probe(b.Context())
		b.wantError("probe of a broken sequence", err, engine.ErrBroken)
		b.restore(seq, was)
	}
	b.same("after a failure", b.state(seq), was)
}

func lawFailed(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	half := len(tokens) / 2
	seq, _ := b.read(tokens[:half])
	was, stats := b.state(seq), seq.Stats()
	s.Fail(b.engine)
	if _, err := seq.Prefill(b.Context(), tokens[half:], nil); err == nil {
		t.Fatal("the prefill that was to fail succeeded")
	}
	b.afterFailure(seq, was, stats)
	b.prefill(seq, tokens[half:])
	whole, _ := b.read(tokens)
	b.same("after a failure, to the end", b.state(seq), b.state(whole))
}

func lawStats(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	seq := b.sequence(len(tokens))
	var sum engine.ChunkStats
	for from := 0; from < len(tokens); from += 7 {
		chunk := tokens[from:min(from+7, len(tokens))]
		st := b.prefill(seq, chunk).Stats
		if st.Tokens != len(chunk) {
			t.Errorf("a chunk of %d tokens counted %d", len(chunk), st.Tokens)
		}
		parts := st.Delta + st.Attention + st.Experts + st.MTP + st.Ngram + st.Other
		if math.Abs(parts-st.Seconds) > 1e-6*max(1, st.Seconds) {
			t.Errorf("parts of a chunk are %g seconds together, the whole is %g", parts, st.Seconds)
		}
		sum = sum.Add(st)
	}
	if got := seq.Stats(); got != sum {
		t.Errorf("sequence counted %+v, its chunks %+v", got, sum)
	}
}

func lawClosed(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(4)
	seq, _ := b.read(tokens)
	for range 2 {
		if err := seq.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	_, prefill := seq.Prefill(b.Context(), tokens[:1], nil)
	_, decode := seq.Decode(b.Context(), tokens[:1], greedy)
	_, logits := seq.Logits(b.Context())
	_, probe := seq.Probe(b.Context())
	_, regions := seq.Regions()
	_, restore := seq.Restore(1)
	for name, err := range map[string]error{"prefill": prefill, "decode": decode, "logits": logits, "probe": probe, "regions": regions, "restore": restore} {
		if err == nil {
			t.Errorf("%s on a closed sequence succeeded", name)
		}
		if errors.Is(err, context.Canceled) {
			t.Errorf("%s on a closed sequence says %v", name, err)
		}
	}
}
