package qwen4exp

import (
	"context"
	"fmt"

	"lector/engine"
	"lector/engine/ops"
)

var (
	_ engine.Sizer    = (*Engine)(nil)
	_ engine.Rewinder = (*Sequence)(nil)
)

// SequenceBytes implements engine.Sizer.
func (e *Engine) SequenceBytes(capacity int) (int64, error) {
	if capacity == 0 {
		capacity = e.checkpoint.Config().MaxTokens
	}
	return e.stateBytes(capacity)
}

// SequenceBudget implements engine.Sizer.
func (e *Engine) SequenceBudget() int64 {
	if b := &e.budget; b.total > 0 {
		return b.total - b.chunk - b.ring
	}
	return 0
}

// mark is a place to go back to: the caches' rows before it are never written again, so the fixed state is all that
// has to be kept.
type mark struct {
	pos         int
	next, draft engine.Token
	drafted     bool
	fixed       []ops.Tensor // copies, in the order of state.fixed
}

// Mark implements engine.Rewinder.
func (s *Sequence) Mark(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.st.pos == 0 {
		return fmt.Errorf("mark at 0: %w", engine.ErrEmpty)
	}
	_, err := s.run(ctx, 1, func(f *pass) error {
		if err := s.allocMark(f.be); err != nil {
			return err
		}
		for i, t := range s.st.fixed {
			f.be.CopyRows(s.marked.fixed[i], 0, t, 0)
		}
		return f.wait()
	})
	if err != nil {
		s.marked.pos = 0
		return fmt.Errorf("mark at %d: %w", s.st.pos, err)
	}
	m := s.marked
	m.pos, m.next, m.draft, m.drafted = s.st.pos, s.st.next, s.st.draft, s.st.drafted
	return nil
}

// allocMark makes room for the copies once, within the memory budget.
func (s *Sequence) allocMark(be ops.Backend) error {
	if s.marked != nil {
		return nil
	}
	count := &tally{Backend: be}
	for _, t := range s.st.fixed {
		_, _ = count.Alloc(t.Rows, t.Cols) // counts, and cannot fail
	}
	held, err := s.engine.takeMark(count.bytes)
	if err != nil {
		return err
	}
	a, m := allocator{be: be}, &mark{}
	for _, t := range s.st.fixed {
		m.fixed = append(m.fixed, a.get(t.Rows, t.Cols))
	}
	if a.err != nil {
		a.release()
		s.engine.giveBack(held)
		return fmt.Errorf("allocate a mark: %w", a.err)
	}
	s.held += held
	s.marked = m
	return nil
}

// takeMark reserves a copy of the fixed state.
func (e *Engine) takeMark(need int64) (int64, error) {
	b := &e.budget
	if b.total == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if free := b.total - b.chunk - b.ring - b.states; need > free {
		return 0, fmt.Errorf("%w: a copy of the fixed state takes %d bytes, %d are free of the budget of %d: raise --memory",
			engine.ErrMemory, need, max(0, free), b.total)
	}
	b.states += need
	e.fitPool()
	return need, nil
}

// Rewind implements engine.Rewinder.
func (s *Sequence) Rewind(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	m := s.marked
	if m == nil || m.pos == 0 {
		return fmt.Errorf("rewind at %d: %w: nothing is marked", s.st.pos, engine.ErrState)
	}
	_, err := s.run(ctx, 1, func(f *pass) error {
		for i, t := range s.st.fixed {
			f.be.CopyRows(t, 0, m.fixed[i], 0)
		}
		if err := f.wait(); err != nil {
			s.broken = true // part of the state may be the old one
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rewind from %d to %d: %w", s.st.pos, m.pos, err)
	}
	s.st.tokens, s.st.pos = s.st.tokens[:m.pos:m.pos], m.pos
	s.st.next, s.st.draft, s.st.drafted = m.next, m.draft, m.drafted
	return nil
}

// dropMark frees the copies.
func (s *Sequence) dropMark() {
	if s.marked == nil {
		return
	}
	for _, t := range s.marked.fixed {
		s.engine.be.Free(t)
	}
	s.marked = nil
}
