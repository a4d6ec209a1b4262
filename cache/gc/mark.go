package gc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"

	"lector/cache"
	"lector/cache/tag"
)

// live is what the roots reach.
type live struct {
	handles, manifests, documents, blobs map[cache.Digest]bool
	nodes                                map[cache.Key]bool
	jobs                                 map[string]bool
	kept                                 map[cache.Key]bool // nodes with a kept recurrent state, live or not
}

// mark finds what the roots reach.
func (r *run) mark(ctx context.Context) error {
	r.live = &live{
		handles: map[cache.Digest]bool{}, manifests: map[cache.Digest]bool{}, documents: map[cache.Digest]bool{},
		blobs: map[cache.Digest]bool{}, nodes: map[cache.Key]bool{}, jobs: map[string]bool{}, kept: map[cache.Key]bool{},
	}
	for o, err := range r.space.Store.List(ctx, r.space.TenantName()+"/keep/") {
		if err != nil {
			return fmt.Errorf("list kept states: %w", err)
		}
		if key, err := cache.ParseKey(path.Base(o.Name)); err == nil {
			r.live.kept[key] = true
		}
	}
	if r.opt.Open != nil {
		open, err := r.opt.Open(ctx)
		if err != nil {
			return fmt.Errorf("ask for open jobs: %w", err)
		}
		if err := r.markOpen(ctx, open); err != nil {
			return err
		}
	}
	for t, err := range tag.All(ctx, r.space) {
		if err != nil {
			return err
		}
		if err := r.markHandle(ctx, t.Handle, "tag "+t.Name); err != nil {
			return err
		}
	}
	return r.markHandles(ctx)
}

// markHandles marks from every handle that has not expired and is not marked yet.
func (r *run) markHandles(ctx context.Context) error {
	for h, err := range r.space.Handles(ctx) {
		if errors.Is(err, cache.ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		if r.live.handles[h.Digest] || h.Handle.Valid(r.now) != nil {
			continue
		}
		if err := r.markHandle(ctx, h.Digest, "the list of handles"); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) markOpen(ctx context.Context, open Open) error {
	for _, job := range open.Jobs {
		r.live.jobs[job] = true
	}
	for _, d := range open.Handles {
		if err := r.markHandle(ctx, d, "an open job"); err != nil {
			return err
		}
	}
	return r.markDocuments(ctx, open.Documents)
}

// markHandle marks a handle and what a restore from it reads. What is missing has been lost before; what cannot be
// read ends the run.
func (r *run) markHandle(ctx context.Context, d cache.Digest, who string) error {
	if r.live.handles[d] {
		return nil
	}
	h, err := r.space.Handle(ctx, d)
	if errors.Is(err, cache.ErrNotFound) {
		r.note("%s names handle %s, which is not there", who, cache.HandleName(d))
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: lector snapshot rm takes it away", err)
	}
	r.live.handles[d] = true
	if r.live.manifests[h.Manifest] {
		return nil
	}
	m, err := r.space.Manifest(ctx, h.Manifest)
	if errors.Is(err, cache.ErrNotFound) {
		r.note("handle %s has lost its manifest: lector snapshot rm takes it away", cache.HandleName(d))
		return nil
	}
	if err != nil {
		return fmt.Errorf("handle %s: %w: lector snapshot rm takes it away", cache.HandleName(d), err)
	}
	r.live.manifests[h.Manifest] = true
	r.live.addBlobs(m.State)
	for _, c := range m.Chunks {
		r.live.addBlobs(c.Rows)
		if m.TokensOnly() {
			continue // state that others have stored of these tokens is theirs to keep
		}
		if err := r.markNode(ctx, c.Key); err != nil {
			return err
		}
	}
	return nil
}

func (l *live) addBlobs(blobs []cache.Blob) {
	for _, b := range blobs {
		l.blobs[b.Digest] = true
	}
}

// markNode marks a node and, where it is kept, the recurrent state at its end: branches go on from there.
func (r *run) markNode(ctx context.Context, key cache.Key) error {
	if r.live.nodes[key] {
		return nil
	}
	r.live.nodes[key] = true
	if !r.live.kept[key] {
		return nil
	}
	n, err := r.space.Node(ctx, key)
	if errors.Is(err, cache.ErrNotFound) {
		return nil // an imported snapshot has none
	}
	if err != nil {
		return err
	}
	r.live.addBlobs(n.Rows)
	r.live.addBlobs(n.State)
	return nil
}

// markDocuments marks documents that are being read, and the nodes that a worker would find for them: those of any
// producer whose chain holds the document's tokens.
func (r *run) markDocuments(ctx context.Context, documents []cache.Digest) error {
	if len(documents) == 0 {
		return nil
	}
	children, err := r.children(ctx)
	if err != nil {
		return err
	}
	for _, d := range documents {
		tokens, err := r.space.Document(ctx, d)
		if errors.Is(err, cache.ErrNotFound) {
			r.note("an open job reads document %s, which is not there", d)
			continue
		}
		if err != nil {
			return err
		}
		r.live.documents[d] = true
		if err := r.markPrefix(ctx, children, tokens); err != nil {
			return err
		}
	}
	return nil
}

// children lists the stored nodes by the node before them. A damaged one is nobody's prefix.
func (r *run) children(ctx context.Context) (map[cache.Key][]cache.Node, error) {
	out := map[cache.Key][]cache.Node{}
	for o, err := range r.space.Store.List(ctx, r.space.TenantName()+"/nodes/") {
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		key, err := cache.ParseKey(path.Base(o.Name))
		if err != nil {
			continue
		}
		n, err := r.space.Node(ctx, key)
		if errors.Is(err, cache.ErrNotFound) || errors.Is(err, cache.ErrCorrupt) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[n.Parent] = append(out[n.Parent], cache.Node{Key: key, From: n.From, To: n.To, Tokens: n.Tokens, Rows: n.Rows})
	}
	return out, nil
}

// markPrefix follows the chains of a document's tokens from their beginnings.
func (r *run) markPrefix(ctx context.Context, children map[cache.Key][]cache.Node, tokens []int32) error {
	todo := []cache.Key{{}}
	for len(todo) > 0 {
		parent := todo[0]
		todo = todo[1:]
		for _, n := range children[parent] {
			if n.To > len(tokens) || tokensDigest(tokens[n.From:n.To]) != n.Tokens {
				continue
			}
			r.live.addBlobs(n.Rows)
			if err := r.markNode(ctx, n.Key); err != nil {
				return err
			}
			todo = append(todo, n.Key)
		}
	}
	return nil
}

// tokensDigest is the digest that a node holds of its tokens.
func tokensDigest(tokens []int32) cache.Digest {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return cache.Sum(b)
}
