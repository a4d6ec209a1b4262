package qwen4exp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lector/engine"
	"lector/engine/ops"
)

// Sequence is one live timeline over a loaded model.
type Sequence struct {
	engine   *Engine
	net      *network
	st       *state
	capacity int
	stats    engine.ChunkStats
	view     *view // nil unless debugging
	broken   bool
	closed   bool
	held     int64 // bytes of the memory budget
	marked   *mark // nil until Mark
}

var _ engine.Sequence = (*Sequence)(nil)

// Pos implements engine.Sequence.
func (s *Sequence) Pos() engine.Pos { return engine.Pos(s.st.pos) }

// Capacity implements engine.Sequence.
func (s *Sequence) Capacity() int { return s.capacity }

// Tokens implements engine.Sequence.
func (s *Sequence) Tokens() []engine.Token { return slices.Clone(s.st.tokens) }

// Stats implements engine.Sequence.
func (s *Sequence) Stats() engine.ChunkStats { return s.stats }

// errClosed is what every call but Close answers after Close.
var errClosed = errors.New("sequence is closed")

// usable refuses calls on a sequence that cannot serve them.
func (s *Sequence) usable() error {
	switch {
	case s.closed:
		return errClosed
	case s.broken:
		return engine.ErrBroken
	}
	return nil
}

// admit refuses tokens before any effect.
func (s *Sequence) admit(tokens []engine.Token, limit int) error {
	if err := s.usable(); err != nil {
		return err
	}
	if len(tokens) == 0 {
		return fmt.Errorf("chunk at %d: %w", s.st.pos, engine.ErrEmpty)
	}
	if end := s.st.pos + len(tokens); end > s.capacity {
		return fmt.Errorf("%w: %d tokens consumed and %d more make %d, the sequence holds %d", engine.ErrTooLong, s.st.pos, len(tokens), end, s.capacity)
	}
	if len(tokens) > limit {
		return fmt.Errorf("%w: a chunk of %d tokens, at most %d fit at once", engine.ErrTooLong, len(tokens), limit)
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= s.net.Vocab {
			return fmt.Errorf("%w: id %d at position %d, the vocabulary has %d", engine.ErrToken, t, s.st.pos+i, s.net.Vocab)
		}
	}
	return nil
}

// batch runs body as one all-or-nothing step over rows new tokens: on failure the fixed state is put back.
func (s *Sequence) batch(ctx context.Context, rows int, body func(f *pass) error) (engine.ChunkStats, error) {
	return s.run(ctx, rows, func(f *pass) error {
		be := f.be
		if rows <= decodeRows {
			f.timer.sample(&s.engine.shares[rows-1])
		}
		s.st.save(f)
		err := body(f)
		if err == nil {
			return nil
		}
		_ = be.Wait(context.WithoutCancel(ctx)) // for what is left of the batch, whose error err stands for
		s.st.putBack(be)
		if late := be.Wait(context.WithoutCancel(ctx)); late != nil {
			s.broken = true
		}
		return err
	})
}

// run claims the engine's scratch, makes room for rows more tokens and times body.
func (s *Sequence) run(ctx context.Context, rows int, body func(f *pass) error) (engine.ChunkStats, error) {
	start := time.Now()
	release, err := s.engine.claim(ctx, rows)
	if err != nil {
		return engine.ChunkStats{}, err
	}
	defer release()
	room := s.st.pos + rows + engine.MaxDrafts
	if s.engine.budget.total > 0 { // growing holds the old caches beside the new: take at once what was reserved
		room = s.capacity + engine.MaxDrafts
	}
	if err := s.st.reserve(s.engine.be, &s.net.dims, room, s.capacity+engine.MaxDrafts); err != nil {
		return engine.ChunkStats{}, err
	}
	stats := engine.ChunkStats{Tokens: rows}
	s.view.begin(s, rows)
	before := s.engine.read()
	f := newPass(ctx, s, rows, &stats)
	if err := f.carry(body); err != nil {
		return engine.ChunkStats{}, storageError(err)
	}
	if used := s.engine.read().Sub(before); s.engine.store != nil {
		stats.Records, stats.RecordBytes, stats.RingWait = used.Records, used.Bytes, used.RingWait.Seconds()
	}
	f.timer.report(&stats, time.Since(start))
	return stats, nil
}

// Prefill implements engine.Sequence.
func (s *Sequence) Prefill(ctx context.Context, tokens []engine.Token, next *engine.Token) (engine.Step, error) {
	step := engine.Step{Draft: engine.NoToken}
	if err := s.admit(tokens, s.engine.maxRows); err != nil {
		return step, err
	}
	if next != nil && (*next < 0 || int(*next) >= s.net.Vocab) {
		return step, fmt.Errorf("%w: next id %d, the vocabulary has %d", engine.ErrToken, *next, s.net.Vocab)
	}
	stats, err := s.batch(ctx, len(tokens), func(f *pass) error {
		var err error
		step, err = s.prefill(f, tokens, next)
		return err
	})
	if err != nil {
		return engine.Step{Draft: engine.NoToken}, fmt.Errorf("prefill [%d, %d): %w", s.st.pos, s.st.pos+len(tokens), err)
	}
	s.stats = s.stats.Add(stats)
	step.Stats = stats
	return step, nil
}

// prefill runs one chunk through trunk and head and adopts it.
func (s *Sequence) prefill(f *pass, tokens []engine.Token, next *engine.Token) (engine.Step, error) {
	var step engine.Step
	f.ids, f.history = tokens, append(s.st.tokens, tokens...)
	if err := s.net.trunk(f, s.st); err != nil {
		return step, err
	}
	if err := f.view.logits(s, f); err != nil {
		return step, err
	}
	last := f.wide.Slice(f.rows-1, f.rows)
	logits, err := s.lastLogits(f, last, f.pos+f.rows)
	if err != nil {
		return step, err
	}
	step.Probe = engine.Probe{Top: top(logits, engine.ProbeTop), Next: argmax(logits), Draft: engine.NoToken}
	head, err := s.headRows(f, tokens, step.Next)
	if err != nil {
		return step, err
	}
	if head != nil {
		if step.Probe.Draft, err = s.draftOf(head); err != nil {
			return step, err
		}
	}
	f.be.CopyRows(s.st.residual, 0, last, 0)
	step.Draft = step.Probe.Draft
	if head != nil && next != nil && *next != step.Next {
		drafts, err := s.chain(f, len(f.history), *next, 1)
		if err != nil {
			return step, err
		}
		step.Draft = drafts[0]
	}
	if err := f.wait(); err != nil {
		return step, err
	}
	s.adopt(f.history, step.Next)
	s.st.draft, s.st.drafted = step.Probe.Draft, true
	return step, nil
}

// adopt makes history the tokens that the state counts. Nothing can fail from here on.
func (s *Sequence) adopt(history []engine.Token, next engine.Token) {
	s.st.tokens, s.st.pos = history, len(history)
	s.st.next, s.st.draft, s.st.drafted = next, engine.NoToken, s.net.mtp == nil
}

// lastLogits computes the logits of the one row of wide, in the host's memory, with ids that no token has
// masked. after is the number of tokens before the row's prediction.
func (s *Sequence) lastLogits(f *pass, wide ops.Tensor, after int) ([]float32, error) {
	g := f.of(1, after-1, nil)
	g.wide = wide
	y := g.logits.Slice(0, 1)
	s.net.logits(g, y)
	if err := g.wait(); err != nil {
		return nil, err
	}
	return s.choosable(y.Row(0), after)
}

// choosable copies a row of logits, checks it and masks the ids that no token has.
func (s *Sequence) choosable(row []float32, after int) ([]float32, error) {
	if err := checkFinite(row, "logits after token", after); err != nil {
		return nil, err
	}
	out := slices.Clone(row)
	for i := s.engine.choices; i < len(out); i++ {
		out[i] = masked
	}
	return out, nil
}

// Close implements engine.Sequence.
func (s *Sequence) Close() error {
	if !s.closed {
		s.closed = true
		s.dropMark()
		s.st.release(s.engine.be)
		s.engine.giveBack(s.held)
	}
	return nil
}
