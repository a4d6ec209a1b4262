package archive

import (
	"context"
	"fmt"

	"lector/cache"
)

// Resalt stores the snapshot of a handle in another space as it would be stored there if the document were read under
// another salt: the same state with the ids and keys of that salt, and a handle for it. Every byte is checked on the
// way. The handle that was given stays as it is, and its tags and signatures with it.
// Errors: those of Copy; cache.ErrIncompatible for a state that does not hold its token ids.
func Resalt(ctx context.Context, from, to *cache.Space, handle cache.Digest, salt []byte) (Carried, error) {
	h, m, err := open(ctx, from, handle)
	if err != nil {
		return Carried{}, err
	}
	tokens, err := from.Tokens(ctx, m)
	if err != nil {
		return Carried{}, fmt.Errorf("handle %s: %w", cache.HandleName(handle), err)
	}
	report, err := from.Verify(ctx, m)
	if err != nil {
		return Carried{}, err
	}
	id := cache.NewIdentity(m.Identity.Fields, m.Identity.Class, m.Identity.Grid, salt)
	if err := copyBlobs(ctx, from, to, m); err != nil {
		return Carried{}, err
	}
	var digest cache.Digest
	if m.TokensOnly() {
		_, digest, err = to.PutTokens(ctx, id, tokens)
	} else {
		_, digest, err = to.PutManifest(ctx, id, resaltedNodes(id, m, tokens))
	}
	if err != nil {
		return Carried{}, err
	}
	h.Tenant, h.Model, h.Manifest = to.TenantName(), id.Model, digest
	d, err := to.PutHandle(ctx, h)
	return Carried{Handle: d, Tokens: m.Tokens, Blobs: report.Blobs, Bytes: report.Bytes}, err
}

// resaltedNodes describes the chunks of a manifest under another identity. They are not stored: a node speaks for every
// document with its prefix, and only who computes a state stores one.
func resaltedNodes(id cache.Identity, m cache.Manifest, tokens []int32) []cache.Node {
	ends := make([]int, len(m.Chunks))
	for i, c := range m.Chunks {
		ends[i] = c.To
	}
	keys := cache.Keys(id.Producer, tokens, ends)
	nodes := make([]cache.Node, len(m.Chunks))
	var parent cache.Key
	for i, c := range m.Chunks {
		nodes[i] = cache.Node{
			Version: cache.NodeVersion, Key: keys[i], Producer: id.Producer, Parent: parent, From: c.From, To: c.To,
			Tokens: c.Tokens, Layout: m.Layout, Rows: c.Rows,
		}
		parent = keys[i]
	}
	last := &nodes[len(nodes)-1]
	last.State, last.Probe = m.State, m.Probe
	return nodes
}
