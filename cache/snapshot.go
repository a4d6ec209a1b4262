package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Handler makes the handle for a manifest and its digest.
type Handler func(Manifest, Digest) Handle

// snapshot is a manifest and the handle for it on their way into the store.
type snapshot struct {
	m                Manifest
	h                Handle
	digest           Digest // of the manifest
	manifest, handle small
	decoded          func() (Manifest, error)
}

// newSnapshot makes manifest and handle of a chain of nodes.
func (s *Space) newSnapshot(id Identity, nodes []Node, handle Handler) (n snapshot, err error) {
	if err := s.check(""); err != nil {
		return n, err
	}
	if n.m, err = NewManifest(id, nodes); err != nil {
		return n, err
	}
	if n.manifest, n.digest, err = s.encoded(n.m); err != nil {
		return n, err
	}
	n.decoded = decodeSoon(n.manifest.bytes)
	n.h = handle(n.m, n.digest)
	n.handle, _, err = s.encodedHandle(n.h)
	return n, err
}

// PutSnapshot is PutManifest, and then PutHandle of the handle that handle makes of the manifest and its digest. Where the
// store can keep bytes that have no name yet, both are made durable together.
// Errors: those of PutManifest and PutHandle.
func (s *Space) PutSnapshot(ctx context.Context, id Identity, nodes []Node, handle Handler) (_ Manifest, _ Handle, err error) {
	n, err := s.newSnapshot(id, nodes, handle)
	if err == nil {
		err = s.complete(ctx, n.m)
	}
	if err != nil {
		return Manifest{}, n.h, err
	}
	batch, err := s.stageSmall(ctx, &n.manifest, &n.handle)
	if err != nil {
		return Manifest{}, n.h, fmt.Errorf("stage manifest and handle of %d tokens: %w", n.m.Tokens, err)
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	both, err := putAll(ctx, batch, []Naming{n.manifest.naming(), n.handle.naming()})
	switch {
	case err != nil:
	case both:
		err = s.confirm(ctx, &n)
	default:
		err = s.putApart(ctx, &n)
	}
	return n.m, n.h, err
}

// complete is Complete on the way to a manifest.
func (s *Space) complete(ctx context.Context, m Manifest) error {
	if err := s.Complete(ctx, m); err != nil {
		return fmt.Errorf("store manifest of %d tokens: %w", m.Tokens, err)
	}
	return nil
}

// putApart puts the manifest, reads it back, and puts the handle.
func (s *Space) putApart(ctx context.Context, n *snapshot) (err error) {
	if err = s.putNamed(ctx, n.manifest); err == nil {
		n.m, err = s.readBack(ctx, n.digest, n.decoded)
	}
	if err != nil {
		return err
	}
	return s.putNamed(ctx, n.handle)
}

// confirm reads a manifest back whose handle is there already.
func (s *Space) confirm(ctx context.Context, n *snapshot) (err error) {
	if n.m, err = s.readBack(ctx, n.digest, n.decoded); err != nil {
		err = errors.Join(err, s.Store.Delete(ctx, n.handle.name)) // nobody was told of it
	}
	return err
}

// stageSmall stages small objects where the store itself can keep them. What it returns is closed in any case.
func (s *Space) stageSmall(ctx context.Context, objects ...*small) (io.Closer, error) {
	st, ok := s.Store.(Stager)
	if !ok {
		return io.NopCloser(nil), nil
	}
	var sizes []int64
	for _, o := range objects {
		sizes = append(sizes, int64(len(o.bytes)))
	}
	batch, err := st.Stage(ctx, sizes)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err == nil {
			err = o.stage(ctx, batch)
		}
	}
	if err == nil {
		err = batch.Sync(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, batch.Close())
	}
	return batch, nil
}

// Last is what PutLast has stored.
type Last struct {
	Node     Node
	Written  Written
	Manifest Manifest
	Handle   Handle
}

// PutLast is PutStep of a document's last chunk, whose recurrent state is kept and which follows the nodes before it, and then
// PutSnapshot of all of them. It takes less time: where the store can keep bytes that have no name yet, all of it is made durable
// together; else the store is asked for the earlier blobs of the manifest while those of the chunk are on their way. Where the
// node was stored and what follows failed, Last holds the node alone. Errors: those of both.
func (s *Space) PutLast(ctx context.Context, a StepArgs, before []Node, handle Handler) (Last, error) {
	if !a.Keep {
		return Last{}, fmt.Errorf("store chunk [%d, %d) and a handle: its recurrent state is not to be kept", a.From, a.To)
	}
	if st, ok := s.Store.(Stager); ok {
		return s.stageLast(ctx, st, a, before, handle)
	}
	n, err := s.describe(a)
	if err != nil {
		return Last{}, err
	}
	var node small
	var last snapshot
	var missing error
	var wg sync.WaitGroup
	defer wg.Wait()
	asking, stop := context.WithCancel(ctx)
	defer stop()
	w, err := s.putBlobs(ctx, a, &n, func() (err error) {
		if node, err = s.smallNode(n); err != nil {
			return err
		}
		if last, err = s.newSnapshot(a.Identity, append(slices.Clone(before), n), handle); err == nil {
			wg.Go(func() { missing = s.complete(asking, last.earlier()) })
		}
		return err
	})
	if err == nil {
		n, err = s.putNode(ctx, n, node)
	}
	if err != nil { // a node that stands and differs counts first
		return Last{}, err
	}
	if wg.Wait(); missing != nil {
		return Last{Node: n, Written: w}, missing
	}
	return last.with(n, w, s.putApart(ctx, &last))
}

// earlier is the manifest without what comes with its last chunk.
func (p *snapshot) earlier() Manifest {
	m := p.m
	m.Chunks, m.State = m.Chunks[:len(m.Chunks)-1], nil
	return m
}

// with is what PutLast has stored, or the node alone if storing it was all that succeeded.
func (p *snapshot) with(n Node, w Written, err error) (Last, error) {
	if err != nil {
		return Last{Node: n, Written: w}, err
	}
	return Last{n, w, p.m, p.h}, nil
}

// stageLast is PutLast where the store can stage.
func (s *Space) stageLast(ctx context.Context, st Stager, a StepArgs, before []Node, handle Handler) (_ Last, err error) {
	step, err := s.stage(ctx, staging{to: st, own: true, more: maxManifestBytes + maxHandleBytes}, a)
	if err != nil {
		return Last{}, err
	}
	defer func() { err = errors.Join(err, step.Close()) }()
	last, err := s.newSnapshot(a.Identity, append(slices.Clone(before), step.Node), handle)
	if err != nil {
		return Last{}, err
	}
	for _, o := range []*small{&last.manifest, &last.handle} {
		if err := o.stage(ctx, step.batch); err != nil {
			return Last{}, fmt.Errorf("stage manifest and handle of %d tokens: %w", last.m.Tokens, err)
		}
	}
	if missing := s.complete(ctx, last.earlier()); missing != nil { // the chunk is worth keeping all the same
		l, _, err := step.commit(ctx)
		if err == nil {
			err = missing
		}
		return l, err
	}
	l, done, err := step.commit(ctx, last.manifest, last.handle)
	if err != nil {
		return l, err
	}
	if done {
		err = s.confirm(ctx, &last)
	} else if err = s.complete(ctx, last.m); err == nil {
		err = s.putApart(ctx, &last)
	}
	return last.with(l.Node, l.Written, err)
}
