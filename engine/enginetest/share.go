package enginetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"lector/engine"
)

// SequenceBytes implements engine.Sizer: rows for the capacity, and the fixed state twice.
func (t *Toy) SequenceBytes(capacity int) (int64, error) {
	if capacity == 0 {
		capacity = orDefault(t.MaxTokens, ToyMaxTokens)
	}
	info := t.Info()
	return int64(capacity)*int64(info.BytesPerToken) + 2*int64(info.FixedBytes), nil
}

// SequenceBudget implements engine.Sizer.
func (t *Toy) SequenceBudget() int64 { return t.Memory }

// reserve takes the memory of a sequence, where there is a budget.
func (t *Toy) reserve(capacity int) (int64, error) {
	need, err := t.SequenceBytes(capacity)
	if err != nil || t.Memory == 0 {
		return 0, err
	}
	if held := t.held.Add(need); held > t.Memory {
		t.held.Add(-need)
		return 0, fmt.Errorf("%w: a sequence of %d tokens needs %d bytes, %d of %d are taken", engine.ErrMemory, capacity, need, held-need, t.Memory)
	}
	return need, nil
}

// rewinder is a sequence that can go back.
type rewinder struct{ *sequence }

var _ engine.Rewinder = rewinder{}

// marked is what a toy keeps of itself.
type marked struct {
	core core
	pos  int
	rows [4]int // sizes
}

// Mark implements engine.Rewinder.
func (s rewinder) Mark(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if s.Pos() == 0 {
		return fmt.Errorf("mark an empty sequence: %w", engine.ErrEmpty)
	}
	m := &marked{core: s.core, pos: len(s.tokens)}
	for i, r := range s.rows {
		m.rows[i] = len(r)
	}
	s.mark = m
	return nil
}

// Rewind implements engine.Rewinder.
func (s rewinder) Rewind(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("rewind: %w", err)
	}
	m := s.mark
	if m == nil {
		return fmt.Errorf("rewind without a mark: %w", engine.ErrState)
	}
	s.core, s.tokens = m.core, slices.Clone(s.tokens[:m.pos])
	for i := range s.rows {
		s.rows[i] = slices.Clone(s.rows[i][:m.rows[i]]) // what was lent stays as it was
	}
	return nil
}

// lawRewind: a sequence that went back is as it was, and what follows does not depend on what it went back from.
func lawRewind(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	half := len(tokens) / 2
	seq, _ := b.read(tokens[:half])
	r, can := seq.(engine.Rewinder)
	if !can {
		return // the contract leaves it to the engine
	}
	b.wantError("rewind without a mark", r.Rewind(b.Context()), engine.ErrState)
	was := b.state(seq)
	if err := r.Mark(b.Context()); err != nil {
		t.Fatalf("mark: %v", err)
	}
	b.same("after a mark", b.state(seq), was)
	whole, _ := b.read(tokens)
	want := b.state(whole)
	for round, n := range []int{len(tokens), half + 1, half, len(tokens)} {
		if n > half {
			b.prefill(seq, tokens[half:n])
		}
		if n == len(tokens) {
			b.same("gone on from a mark", b.state(seq), want)
		}
		b.generate(seq, 6, min(round, engine.MaxDrafts)*b.drafting())
		if err := r.Rewind(b.Context()); err != nil {
			t.Fatalf("rewind: %v", err)
		}
		b.same("rewound", b.state(seq), was)
	}
	first := b.generate(seq, 8, 0)
	for drafts := 0; drafts <= engine.MaxDrafts*b.drafting(); drafts++ {
		if err := r.Rewind(b.Context()); err != nil {
			t.Fatalf("rewind: %v", err)
		}
		if got := b.generate(seq, 8, drafts); !equal(got, first) {
			t.Fatalf("text after a rewind with %d drafts is %v, was %v", drafts, got, first)
		}
	}
	b.restoreDropsMark(was)
}

// drafting is 1 for a model that drafts.
func (b *bench) drafting() int {
	if b.SkipDrafts {
		return 0
	}
	return 1
}

// restoreDropsMark: a mark of what was there before a restore is not one of what is there now.
func (b *bench) restoreDropsMark(was state) {
	b.Helper()
	seq := b.sequence(len(was.Tokens) + 8)
	b.restore(seq, was)
	b.wantError("rewind after a restore", seq.(engine.Rewinder).Rewind(b.Context()), engine.ErrState)
	b.same("after a refused rewind", b.state(seq), was)
}
