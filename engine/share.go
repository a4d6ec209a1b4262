package engine

import "context"

// Sizer is an Engine that reserves memory for the states of its sequences, and says how much.
type Sizer interface {
	// SequenceBytes is what NewSequence(capacity) reserves: rows, fixed state, and what undoes a step.
	SequenceBytes(capacity int) (int64, error)
	// SequenceBudget is what all open sequences together may reserve; 0: no bound.
	SequenceBudget() int64
}

// Rewinder is a Sequence that can go back to one place as often as asked. Texts that part there share the rows before
// it, and the cost of reading them.
type Rewinder interface {
	// Mark keeps the fixed state at Pos, in place of an earlier mark; that takes Info.FixedBytes of memory (ErrMemory).
	Mark(ctx context.Context) error
	// Rewind puts the sequence back to where it was marked: nothing after that counts any more. Without a mark, or
	// after a Restore: ErrState.
	Rewind(ctx context.Context) error
}
