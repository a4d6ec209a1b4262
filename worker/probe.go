package worker

import (
	"context"
	"errors"

	"lector/cache"
	"lector/engine"
)

// Probe restores a snapshot into a fresh sequence of the engine, runs the probe step that was stored with it and
// compares: what the state said when it was stored, it must say now. It returns the bytes read.
// salts are those that the tenant has or had, none without one. Errors: those of cache.Identity.Compatible and of cache.Space.Restore, and one that names the value that differs.
func Probe(ctx context.Context, e engine.Engine, space *cache.Space, m cache.Manifest, salts ...[]byte) (bytes int64, err error) {
	if len(salts) == 0 {
		salts = [][]byte{nil}
	}
	id, err := identityOf(e, salts[0])
	if err != nil {
		return 0, err
	}
	if err := id.CompatibleSalted(m.Identity, salts[1:]); err != nil {
		return 0, err
	}
	seq, err := e.NewSequence(m.Tokens)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, seq.Close()) }()
	bounded := cache.Agree(m.Identity.Class, id.Class) != cache.Exact
	return restore(ctx, seq, restoreArgs{space: space, manifest: m, bounded: bounded})
}
