package worker

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"lector/cache"
)

// kept is what a handle is to hold: the state at the end of a chain of nodes, or token ids alone.
type kept struct {
	nodes  []cache.Node
	tokens []int32
	made   *cache.Last // manifest and handle of the nodes, stored with the last of them; nil: they are still to be made
}

// makeHandle stores a manifest and a handle for it. The manifest was read back and verified when it returns: promise 3.
func (a *attempt) makeHandle(ctx context.Context, k kept, ttl time.Duration) (cache.Manifest, cache.Handle, error) {
	if k.made != nil {
		return k.made.Manifest, k.made.Handle, nil
	}
	if k.nodes != nil {
		return a.Space.PutSnapshot(ctx, a.identity, k.nodes, a.handler(ttl))
	}
	m, digest, err := a.Space.PutTokens(ctx, a.identity, k.tokens)
	if err != nil {
		return m, cache.Handle{}, err
	}
	h := a.handleFor(m, digest, ttl)
	_, err = a.Space.PutHandle(ctx, h)
	return m, h, err
}

// handler makes the job's handles.
func (a *attempt) handler(ttl time.Duration) cache.Handler {
	return func(m cache.Manifest, d cache.Digest) cache.Handle { return a.handleFor(m, d, ttl) }
}

// handleFor is the job's handle for a manifest.
func (a *attempt) handleFor(m cache.Manifest, digest cache.Digest, ttl time.Duration) cache.Handle {
	h := cache.Handle{
		Version: cache.HandleVersion, Manifest: digest, Model: a.identity.Model, Tokens: m.Tokens, Tenant: a.tenant(),
	}
	if ttl > 0 {
		h.Expires = a.job.Submitted.Add(ttl).UTC() // from the order, so that a repeat gives the same bytes
	}
	return h
}

// putHandle is makeHandle, and publishes the handle as the job's. One that was published before must be the same.
func (a *attempt) putHandle(ctx context.Context, k kept, ttl time.Duration) (cache.Manifest, cache.Handle, error) {
	m, h, err := a.makeHandle(ctx, k, ttl)
	if err != nil {
		return m, h, err
	}
	if err := a.own(ctx); err != nil {
		return m, h, err
	}
	saying, end := a.span(ctx, "queue publish_handle")
	standing, err := a.Queue.PublishHandle(saying, a.job.ID, h.Encode())
	end(err)
	if err != nil {
		return m, h, fmt.Errorf("publish handle of job %s: %w", a.job.ID, err)
	}
	if !bytes.Equal(standing, h.Encode()) {
		return m, h, &handleConflict{a.job.ID, cache.Sum(standing), cache.Sum(h.Encode())}
	}
	return m, h, nil
}

// tenant is the name that handles of this worker carry.
func (a *attempt) tenant() string {
	if a.Space.Tenant == "" {
		return cache.DefaultTenant
	}
	return a.Space.Tenant
}
