//go:build race || !amd64

package cpu

import "sync/atomic"

// publish is a.Store(v) for who need not see what others stored meanwhile before it goes on.
func publish(a *atomic.Uint64, v uint64) { a.Store(v) }
