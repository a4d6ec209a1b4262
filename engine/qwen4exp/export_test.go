package qwen4exp

import "lector/engine/ops"

// BackendOf lets tests reach the backend that they opened an engine on.
func BackendOf(e *Engine) ops.Backend { return e.be }
