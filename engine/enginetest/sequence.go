package enginetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"lector/engine"
)

var errClosed = errors.New("sequence is closed")

// sequence is one live timeline of a Toy.
type sequence struct {
	toy      *Toy
	capacity int
	closed   bool
	broken   bool

	core   core
	tokens []engine.Token
	rows   [4][]byte // of the Rows regions, in the order of layout
	stats  engine.ChunkStats
	held   int64 // of the toy's memory
	mark   *marked
}

var _ engine.Sequence = (*sequence)(nil)

func (s *sequence) reset() {
	s.core, s.tokens, s.broken, s.mark = newCore(s.toy.Seed), nil, false, nil
	s.rows = [4][]byte{}
}

// Pos implements engine.Sequence.
func (s *sequence) Pos() engine.Pos { return engine.Pos(len(s.tokens)) }

// Capacity implements engine.Sequence.
func (s *sequence) Capacity() int { return s.capacity }

// Tokens implements engine.Sequence.
func (s *sequence) Tokens() []engine.Token { return slices.Clone(s.tokens) }

// Stats implements engine.Sequence.
func (s *sequence) Stats() engine.ChunkStats { return s.stats }

// Close implements engine.Sequence.
func (s *sequence) Close() error {
	if !s.closed {
		s.closed = true
		s.toy.open.Add(-1)
		s.toy.held.Add(-s.held)
	}
	return nil
}

// Prefill implements engine.Sequence.
func (s *sequence) Prefill(ctx context.Context, tokens []engine.Token, next *engine.Token) (engine.Step, error) {
	if err := s.admit(ctx, tokens); err != nil {
		return engine.Step{}, fmt.Errorf("prefill: %w", err)
	}
	if next != nil && (*next < 0 || int(*next) >= s.toy.vocabulary()) {
		return engine.Step{}, fmt.Errorf("prefill with next token %d: %w", *next, engine.ErrToken)
	}
	n := int(s.toy.prefills.Add(1))
	if err := s.fault(ctx, s.toy.BeforePrefill, n, tokens); err != nil {
		return engine.Step{}, fmt.Errorf("prefill: %w", err)
	}
	for _, id := range tokens {
		s.consume(id)
	}
	s.toy.prefilled.Add(int64(len(tokens)))
	step := engine.Step{Probe: s.core.probe(s.toy.vocabulary(), !s.toy.NoHead), Stats: s.account(len(tokens))}
	step.Draft = step.Probe.Draft
	if next != nil && !s.toy.NoHead {
		step.Draft = s.core.guess(*next, s.toy.vocabulary())
	}
	return step, nil
}

// Decode implements engine.Sequence. A draft is consumed only once it is confirmed, so there is nothing to roll back.
func (s *sequence) Decode(ctx context.Context, tokens []engine.Token, choose engine.Choose) (engine.Decoded, error) {
	if err := s.admit(ctx, tokens); err != nil {
		return engine.Decoded{}, fmt.Errorf("decode: %w", err)
	}
	switch {
	case len(tokens) > 1+engine.MaxDrafts:
		return engine.Decoded{}, fmt.Errorf("decode %d drafts where %d are the most: %w", len(tokens)-1, engine.MaxDrafts, engine.ErrTooLong)
	case len(tokens) > 1 && s.toy.NoHead:
		return engine.Decoded{}, fmt.Errorf("decode drafts: %w", engine.ErrNoHead)
	}
	n := int(s.toy.decodes.Add(1))
	if err := s.fault(ctx, s.toy.BeforeDecode, n, tokens); err != nil {
		return engine.Decoded{}, fmt.Errorf("decode: %w", err)
	}
	var out engine.Decoded
	for i, id := range tokens {
		if i > 0 && out.Chosen[i-1] != id {
			break
		}
		s.consume(id)
		logits := s.core.logits(s.toy.vocabulary())
		if choose == nil {
			choose = greedy
		}
		out.Chosen = append(out.Chosen, choose(s.Pos(), logits))
	}
	s.toy.committed.Add(int64(len(out.Chosen)))
	out.Stats = s.account(len(out.Chosen))
	return out, nil
}

// Draft implements engine.Sequence.
func (s *sequence) Draft(ctx context.Context, next engine.Token, n int) ([]engine.Token, error) {
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("draft: %w", err)
	}
	v := s.toy.vocabulary()
	switch {
	case s.toy.NoHead:
		return nil, fmt.Errorf("draft: %w", engine.ErrNoHead)
	case next < 0 || int(next) >= v:
		return nil, fmt.Errorf("draft after token %d: %w", next, engine.ErrToken)
	case s.Pos() == 0:
		return nil, fmt.Errorf("draft on an empty sequence: %w", engine.ErrEmpty)
	}
	var out []engine.Token
	for c := s.core; len(out) < n; c = c.after(next) {
		if len(out) > 0 {
			next = out[len(out)-1]
		}
		out = append(out, c.guess(next, v))
	}
	return out, nil
}

// Logits implements engine.Sequence.
func (s *sequence) Logits(ctx context.Context) ([]float32, error) {
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("logits: %w", err)
	}
	if s.Pos() == 0 {
		return nil, fmt.Errorf("logits of an empty sequence: %w", engine.ErrEmpty)
	}
	return s.core.logits(s.toy.vocabulary()), nil
}

// Probe implements engine.Sequence.
func (s *sequence) Probe(ctx context.Context) (engine.Probe, error) {
	if err := s.usable(ctx); err != nil {
		return engine.Probe{}, fmt.Errorf("probe: %w", err)
	}
	if s.Pos() == 0 {
		return engine.Probe{}, fmt.Errorf("probe an empty sequence: %w", engine.ErrEmpty)
	}
	return s.core.probe(s.toy.vocabulary(), !s.toy.NoHead), nil
}

func (s *sequence) usable(ctx context.Context) error {
	switch {
	case s.closed:
		return errClosed
	case s.broken:
		return engine.ErrBroken
	}
	return context.Cause(ctx)
}

// admit refuses bad input before any effect.
func (s *sequence) admit(ctx context.Context, tokens []engine.Token) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if len(tokens) == 0 {
		return engine.ErrEmpty
	}
	if n := len(s.tokens) + len(tokens); n > s.capacity {
		return fmt.Errorf("%d tokens in a sequence of %d: %w", n, s.capacity, engine.ErrTooLong)
	}
	if limit := orDefault(s.toy.MaxChunk, ToyMaxChunk); len(tokens) > limit {
		return fmt.Errorf("a chunk of %d tokens where %d are the most: %w", len(tokens), limit, engine.ErrTooLong)
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= s.toy.vocabulary() {
			return fmt.Errorf("token %d at %d of a vocabulary of %d: %w", id, i, s.toy.vocabulary(), engine.ErrToken)
		}
	}
	return nil
}

func (s *sequence) fault(ctx context.Context, hook func(context.Context, int, []engine.Token) error, n int, tokens []engine.Token) error {
	if hook == nil {
		return nil
	}
	err := hook(ctx, n, tokens)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.broken = s.toy.Breaks
	}
	return err
}

func (s *sequence) consume(id engine.Token) {
	if len(s.tokens) > 0 {
		for _, v := range s.core.headRow(id) {
			s.rows[3] = appendFloat(s.rows[3], v)
		}
	}
	s.core = s.core.after(id)
	s.tokens = append(s.tokens, id)
	s.rows[0] = binary.LittleEndian.AppendUint32(s.rows[0], uint32(id))
	for i := range 4 {
		s.rows[1] = appendFloat(s.rows[1], value(s.core.digest, i))
		s.rows[2] = appendFloat(s.rows[2], value(s.core.digest, 4+i))
	}
}

// account makes up the times of n rows; they add up as a real engine's do.
func (s *sequence) account(n int) engine.ChunkStats {
	ms := float64(n) / 1000
	st := engine.ChunkStats{
		Tokens: n, Seconds: 4 * ms, Records: 2 * n, RecordBytes: int64(128 * n),
		Delta: ms, Attention: ms, Experts: ms, Other: ms,
	}
	s.stats = s.stats.Add(st)
	return st
}

func appendFloat(b []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
}
