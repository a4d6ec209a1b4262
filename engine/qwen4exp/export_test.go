package qwen4exp

import "lector/engine/ops"

// BackendOf lets tests reach the backend that they opened an engine on.
func BackendOf(e *Engine) ops.Backend { return e.be }

// ScratchBytes is what a chunk of rows needs.
func ScratchBytes(e *Engine, rows int, views bool) int { return scratchBytes(&e.net.dims, rows, views) }
