package qwen4exp

import (
	"context"

	"lector/engine/ops"
)

// BackendOf lets tests reach the backend that they opened an engine on.
func BackendOf(e *Engine) ops.Backend { return e.be }

// ChunkBytes is what a chunk of rows needs.
func ChunkBytes(e *Engine, rows int, views bool) int { return e.chunkBytes(rows, views) }

// Planned is what chunks, the ring and live sequences take of the budget.
func Planned(e *Engine) int64 { return e.budget.chunk + e.budget.ring + e.budget.states }

// StateBytes is what a sequence of a capacity takes of the budget.
func StateBytes(e *Engine, capacity int) (int64, error) { return e.stateBytes(capacity) }

// Panic begins a pass of one row that panics after some operations.
func Panic(s *Sequence, operations func(be ops.Backend)) {
	_, _ = s.run(context.Background(), 1, func(f *pass) error {
		operations(f.be)
		panic("planted")
	})
}
