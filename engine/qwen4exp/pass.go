package qwen4exp

import (
	"context"
	"errors"
	"fmt"

	"lector/engine"
	"lector/engine/ops"
	"lector/engine/stream"
)

// pass is one run over the rows of a chunk: the tensors sliced to those rows, where they stand, and where
// their time is counted.
type pass struct {
	tensors
	be        ops.Backend
	few       ops.FewRows // the same, where it carries out several operations on so few rows at once; else nil
	dims      *dims
	ctx       context.Context
	rows      int
	pos       int             // of row 0
	ids       []engine.Token  // of the rows
	history   []engine.Token  // the sequence's tokens, the rows' own included
	keep      bool            // keep what a replay needs
	draft     bool            // a pass of the draft head: its time is MTP's
	pending   ops.Tensor      // block output whose injection is deferred
	store     *stream.Store   // nil where all weights are in memory
	gathering map[*ple]ngrams // rows on their way, by the layer that takes them
	stats     *engine.ChunkStats
	timer     *timer
	whole     *tensors
	view      *view
	meets     []ops.Tensor // of meet: what becomes of products, and
	with      []*ops.Matrix
}

// newPass starts a pass over rows; the clock starts now.
func newPass(ctx context.Context, s *Sequence, rows int, stats *engine.ChunkStats) *pass {
	f := &pass{
		be: s.engine.late, dims: &s.net.dims, ctx: ctx, stats: stats, timer: newTimer(s.engine.late), whole: &s.engine.scratch.tensors, view: s.view,
		store: s.engine.store, gathering: map[*ple]ngrams{},
	}
	return f.of(rows, s.st.pos, nil)
}

// of is a pass over other rows on the same scratch, clock and statistics.
func (f *pass) of(rows, pos int, ids []engine.Token) *pass {
	g := *f
	g.tensors = *f.whole
	g.walk(f.dims, rows, func(t *ops.Tensor, rows, _ int) { *t = t.Slice(0, rows) })
	g.rows, g.pos, g.ids, g.pending, g.keep, g.draft = rows, pos, ids, ops.Tensor{}, false, false
	if g.few, _ = f.be.(ops.FewRows); g.few != nil && !g.few.TakesFew(rows) {
		g.few = nil
	}
	return &g
}

// carry runs body. If that fails or panics, what it has put off is over before anybody else works in the same memory.
func (f *pass) carry(body func(f *pass) error) error {
	done := false
	defer func() {
		if !done {
			_ = f.be.Wait(context.WithoutCancel(f.ctx)) // what went wrong in body stands for it
		}
	}()
	err := body(f)
	done = err == nil
	return err
}

// meet adds a product to those of the next multiply.
func (f *pass) meet(y ops.Tensor, w *ops.Matrix) *pass {
	f.meets, f.with = append(f.meets, y), append(f.with, w)
	return f
}

// multiply computes the products of few rows x that were added: each y = x wᵀ.
func (f *pass) multiply(x ops.Tensor) {
	f.few.LinearAll(x, f.meets, f.with)
	f.meets, f.with = f.meets[:0], f.with[:0]
}

// enter begins a part of the pass, and returns the first error that is known. A backend that runs late is not waited
// for: it stands still while the host waits.
func (f *pass) enter(part ops.Part) error {
	if f.draft {
		part = ops.PartMTP
	}
	err := f.timer.failed
	if err == nil {
		err = f.ctx.Err()
	}
	if f.timer.late == nil {
		if late := f.be.Wait(f.ctx); err == nil {
			err = late
		}
	} else if late := f.timer.late.Err(); err == nil {
		err = late
	}
	f.timer.enter(part)
	return deviceError(err)
}

// wait finishes the operations queued so far. Where it fails in a place that cannot say so, enter and wait return the
// error again.
func (f *pass) wait() error {
	err := f.be.Wait(f.ctx)
	f.timer.enter(f.timer.part)
	if f.timer.failed == nil {
		f.timer.failed = err
	}
	return deviceError(f.timer.failed)
}

// deviceError says a backend's failure in the words of package engine.
func deviceError(err error) error {
	switch {
	case errors.Is(err, ops.ErrDevice):
		return fmt.Errorf("%w: %w", engine.ErrDevice, err)
	case errors.Is(err, ops.ErrNumeric):
		return fmt.Errorf("%w: %w", engine.ErrNumeric, err)
	case errors.Is(err, ops.ErrMemory):
		return fmt.Errorf("%w: %w", engine.ErrMemory, err)
	}
	return err
}

// skips says that a debug setting leaves the part out.
func (f *pass) skips(part string) bool { return f.view != nil && f.view.skip[part] }

// layerCap is how many of n layers run.
func (f *pass) layerCap(n int) int {
	if f.view != nil && f.view.cap > 0 {
		return min(n, f.view.cap)
	}
	return n
}

// zero clears t, which pending work may still use: what a skipped part yields.
func (f *pass) zero(t ops.Tensor) error {
	err := f.wait()
	clear(t.Floats())
	return err
}
