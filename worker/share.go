package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lector/engine"
	"lector/queue"
)

// share is one engine as several attempts of a process have it: by turns, and within the memory for states.
type share struct {
	turns *turns
	room  *room
}

func newShare(e engine.Engine, memory int64, now func() time.Time) *share {
	if s, bounds := e.(engine.Sizer); bounds {
		if own := s.SequenceBudget(); own > 0 && (memory == 0 || own < memory) {
			memory = own
		}
	}
	return &share{turns: newTurns(now), room: &room{total: memory}}
}

// lent is the engine as one attempt has it.
type lent struct {
	engine.Engine
	*share
	kind    queue.Kind
	ctx     context.Context // of the attempt's work
	attempt *attempt
	marks   bool // sequences will be marked: room for that is taken with them
}

// NewSequence waits for room, or for the end of the attempt, of its job or of the worker.
func (l *lent) NewSequence(capacity int) (engine.Sequence, error) {
	bytes, err := l.bytes(capacity)
	if err != nil {
		return nil, err
	}
	room, err := l.room.ask(bytes)
	if err == nil {
		err = l.attempt.wait(l.ctx, room)
	}
	if err != nil {
		return nil, fmt.Errorf("open a sequence of %d tokens: %w", capacity, err)
	}
	leave := room.leave
	s := &lentSequence{lent: l}
	part := l.turns.join(l.kind)
	s.leave = func() { part(); leave() }
	defer func() {
		if s.Sequence == nil { // the engine refused, or panicked
			s.leave()
		}
	}()
	err = s.step(l.ctx, func() error {
		s.Sequence, err = l.Engine.NewSequence(capacity)
		return err
	})
	if err != nil {
		s.Sequence = nil
		return nil, err
	}
	return s, nil
}

// bytes is the memory that a sequence takes, by the engine's own word where it has one.
func (l *lent) bytes(capacity int) (n int64, err error) {
	info := l.Engine.Info()
	if s, sizes := l.Engine.(engine.Sizer); sizes {
		if n, err = s.SequenceBytes(capacity); err != nil {
			return 0, err
		}
	} else {
		if capacity == 0 {
			capacity = info.MaxTokens
		}
		n = int64(capacity)*int64(info.BytesPerToken) + 2*int64(info.FixedBytes) // a step is undone from a copy
	}
	if l.marks {
		n += int64(info.FixedBytes)
	}
	return n, nil
}

// lentSequence takes a turn for everything that touches the engine.
type lentSequence struct {
	engine.Sequence
	*lent
	holding bool   // within whole
	leave   func() // nil once closed
}

// step runs f in a turn.
func (s *lentSequence) step(ctx context.Context, f func() error) error {
	if s.holding {
		return f()
	}
	end, err := s.turns.take(ctx, s.kind)
	if err != nil {
		return fmt.Errorf("wait for the engine: %w", err)
	}
	defer end()
	if err = f(); errors.Is(err, engine.ErrMemory) && !s.room.alone() {
		err = fmt.Errorf("%w: %w", errFull, err)
	}
	return err
}

// whole runs f, several calls of seq, as one step.
func whole(ctx context.Context, seq engine.Sequence, f func() error) error {
	s, shared := seq.(*lentSequence)
	if !shared {
		return f()
	}
	return s.step(ctx, func() error {
		s.holding = true
		defer func() { s.holding = false }()
		return f()
	})
}

// rewinder is seq, if its engine can go back.
func rewinder(seq engine.Sequence) (engine.Rewinder, bool) {
	s, shared := seq.(*lentSequence)
	if !shared {
		r, can := seq.(engine.Rewinder)
		return r, can
	}
	r, can := s.Sequence.(engine.Rewinder)
	return lentRewinder{s, r}, can
}

type lentRewinder struct {
	seq *lentSequence
	engine.Rewinder
}

func (r lentRewinder) Mark(ctx context.Context) error {
	return r.seq.step(ctx, func() error { return r.Rewinder.Mark(ctx) })
}

func (r lentRewinder) Rewind(ctx context.Context) error {
	return r.seq.step(ctx, func() error { return r.Rewinder.Rewind(ctx) })
}

func (s *lentSequence) Prefill(ctx context.Context, tokens []engine.Token, next *engine.Token) (out engine.Step, err error) {
	err = s.step(ctx, func() error {
		out, err = s.Sequence.Prefill(ctx, tokens, next)
		return err
	})
	return out, err
}

func (s *lentSequence) Decode(ctx context.Context, tokens []engine.Token, choose engine.Choose) (out engine.Decoded, err error) {
	err = s.step(ctx, func() error {
		out, err = s.Sequence.Decode(ctx, tokens, choose)
		return err
	})
	return out, err
}

func (s *lentSequence) Draft(ctx context.Context, next engine.Token, n int) (out []engine.Token, err error) {
	err = s.step(ctx, func() error {
		out, err = s.Sequence.Draft(ctx, next, n)
		return err
	})
	return out, err
}

func (s *lentSequence) Logits(ctx context.Context) (out []float32, err error) {
	err = s.step(ctx, func() error {
		out, err = s.Sequence.Logits(ctx)
		return err
	})
	return out, err
}

func (s *lentSequence) Probe(ctx context.Context) (out engine.Probe, err error) {
	err = s.step(ctx, func() error {
		out, err = s.Sequence.Probe(ctx)
		return err
	})
	return out, err
}

func (s *lentSequence) Regions() (out []engine.Region, err error) {
	err = s.step(s.ctx, func() error {
		out, err = s.Sequence.Regions()
		return err
	})
	return out, err
}

// Restore leaves the turn while the caller fills in what it has read: only the commit computes.
func (s *lentSequence) Restore(pos engine.Pos) (out engine.Restoration, err error) {
	err = s.step(s.ctx, func() error {
		out, err = s.Sequence.Restore(pos)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lentRestoration{out, s}, nil
}

type lentRestoration struct {
	engine.Restoration
	seq *lentSequence
}

func (r lentRestoration) Commit(ctx context.Context) error {
	return r.seq.step(ctx, func() error { return r.Restoration.Commit(ctx) })
}

// Close gives the room back. It waits for its turn however the attempt ended.
func (s *lentSequence) Close() error {
	err := s.step(context.WithoutCancel(s.ctx), s.Sequence.Close)
	if s.leave != nil {
		s.leave()
		s.leave = nil
	}
	return err
}
