//go:build !race

package cpu

import "sync/atomic"

// publish is a.Store(v) for who need not see what others stored meanwhile before it goes on: a processor of this kind shows stores in
// their order, and does not wait until another core has given up the line.
func publish(a *atomic.Uint64, v uint64) { store(a, v) }

//go:noescape
func store(a *atomic.Uint64, v uint64)
