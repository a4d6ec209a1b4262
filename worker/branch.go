package worker

import (
	"context"
	"fmt"

	"lector/engine"
)

// branches makes the order's texts, one after the other on one sequence: together they take as long as by turns, the
// first is there sooner, and the rows of document and prompt are held once. Where the engine cannot go back, each
// restores the handle for itself.
func (r *resume) branches(ctx context.Context) error {
	n := max(1, r.order.Branches)
	if back, can := rewinder(r.seq); can && n > 1 {
		if err := back.Mark(ctx); err != nil {
			return err
		}
	}
	for i := range n {
		if i > 0 {
			if err := r.back(ctx); err != nil {
				return fmt.Errorf("begin branch %d: %w", i, err)
			}
		}
		b := r.newBranch(i)
		if err := b.generate(ctx); err != nil {
			return err
		}
		r.result.add(b.out, n)
	}
	return nil
}

// back puts the sequence to the end of the prompt again.
func (r *resume) back(ctx context.Context) error {
	if back, can := rewinder(r.seq); can {
		return back.Rewind(ctx)
	}
	err := r.seq.Close()
	r.seq = closed{}
	if err != nil {
		return err
	}
	fresh, err := r.Engine.NewSequence(r.base + r.limit)
	if err != nil {
		return err
	}
	r.seq = fresh
	usage := r.result.Usage // what one text costs is counted once
	if err = r.restore(ctx); err == nil {
		err = r.read(ctx)
	}
	r.result.Usage = usage
	return err
}

// closed stands where there is no sequence to close.
type closed struct{ engine.Sequence }

func (closed) Close() error { return nil }

// add takes a finished text of n into the result.
func (r *Result) add(b Branch, n int) {
	if b.Index == 0 {
		r.Text, r.IDs, r.FinishReason = b.Text, b.IDs, b.FinishReason
	}
	r.Usage.Generated += b.Usage.Generated
	r.Usage.Drafted += b.Usage.Drafted
	r.Usage.Accepted += b.Usage.Accepted
	if n > 1 {
		r.Branches = append(r.Branches, b)
	}
}
