package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ErrRoom says that a chunk is larger than a Stager will ever have room for; the message says by how much.
var ErrRoom = errors.New("larger than the whole spool")

// Stager keeps the bytes of a chunk safe before they have a name in the store, so that the sequence they came from
// may move on while the store takes them. A spool on a disk is one; a Store is one where it can name bytes that it
// has written already. It may be used from any goroutine.
type Stager interface {
	// Stage opens a batch with room for objects of these sizes. It waits while other batches hold the room, until ctx
	// ends. What will never fit is ErrRoom.
	Stage(ctx context.Context, sizes []int64) (Batch, error)
}

// Batch is one chunk's room in a Stager. It may be used from any goroutine.
type Batch interface {
	// Add keeps size bytes of body, one of the batch's sizes; when it returns they would survive a power cut. It reads
	// body from its start, and never after it has returned. What the batch has no room for is an error.
	Add(ctx context.Context, body io.ReadSeeker, size int64) (Staged, error)
	// Close gives back the room and what was not put. Closing twice is harmless.
	Close() error
}

// Staged is one object's bytes in a batch. One that hands them to a store as a Summed body has a method Summed, which is
// called once with their digest, before Put.
type Staged interface {
	// Put is Store.Put with the staged bytes. After an error it may be called again, until the batch is closed.
	Put(ctx context.Context, name string, how PutMode) error
}

// Step is one finished chunk on its way into the store: its bytes are staged, its node is known, and the store knows
// nothing of it yet.
type Step struct {
	Node Node

	space *Space
	args  StepArgs
	batch Batch
	rows  []stagedBlob
	state []stagedBlob

	mark, node Staged // the small objects, where the store itself keeps what is staged; else nil
}

type stagedBlob struct {
	Blob
	staged Staged
}

// CanStage says whether chunks can be staged: the space has a spool, or its store is a Stager.
func (s *Space) CanStage() bool { return s.stager() != nil }

func (s *Space) stager() Stager {
	if s.Spool != nil {
		return s.Spool
	}
	st, _ := s.Store.(Stager)
	return st
}

// Stage keeps a finished chunk safe outside of the store; when it returns, the regions may change. The caller then
// commits the step, and closes it in any case. Errors: ErrRoom, and those of the disk that the spool is on.
func (s *Space) Stage(ctx context.Context, a StepArgs) (*Step, error) {
	st := s.stager()
	if st == nil {
		return nil, fmt.Errorf("stage chunk [%d, %d): the store cannot, and there is no spool", a.From, a.To)
	}
	return s.stage(ctx, st, a)
}

func (s *Space) stage(ctx context.Context, st Stager, a StepArgs) (_ *Step, err error) {
	n, err := s.describe(a)
	if err != nil {
		return nil, err
	}
	rows, state := s.cut(rowSegments(a.Regions, a.From, a.To)), s.cut(fixedSegments(a.Regions))
	sizes := sizesOf(rows)
	if !a.Named {
		sizes = append(sizes, sizesOf(state)...)
	}
	early := s.Spool == nil // staged in the store: a name is all that the small objects need later
	if early {
		more, err := smallSizes(s.keepMark(a), n, rows, state)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, more...)
	}
	batch, err := st.Stage(ctx, sizes)
	if err != nil {
		return nil, fmt.Errorf("stage chunk [%d, %d): %w", a.From, a.To, err)
	}
	step := &Step{space: s, args: a, batch: batch, rows: make([]stagedBlob, len(rows)), state: make([]stagedBlob, len(state))}
	step.args.Regions = nil // they belong to the sequence, which moves on
	defer func() {
		if err != nil {
			err = errors.Join(err, batch.Close())
		}
	}()
	if err := step.fill(ctx, n, stageParts{rows, state, early}); err != nil {
		return nil, fmt.Errorf("stage chunk [%d, %d): %w", a.From, a.To, err)
	}
	return step, nil
}

// stageParts is what a step stages.
type stageParts struct {
	rows, state []*body
	early       bool // the small objects, too
}

// fill stages the blobs and describes them. The small objects that go early are written while the disk still takes the
// blobs: the node as soon as their digests are known.
func (t *Step) fill(ctx context.Context, n Node, p stageParts) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight + 2) // two for the small objects
	cores := newTurns()
	hashed := startSums(gctx, slices.Concat(p.rows, p.state), cores)
	for i, b := range p.rows {
		g.Go(func() error { return t.rows[i].fill(gctx, t.batch, b, cores) })
	}
	if !t.args.Named {
		for i, b := range p.state {
			g.Go(func() error { return t.state[i].fill(gctx, t.batch, b, cores) })
		}
	}
	err := hashed.wait() // a small object that is synced before all is written would have the disk do its work twice
	if err == nil {
		t.describe(hashed.digests(), p)
		n.Rows, n.State = blobsOf(t.rows), blobsOf(t.state)
		t.Node = n.normal()
		if p.early {
			t.addSmall(gctx, g)
		}
	} else {
		g.Go(func() error { return err }) // behind what ended the context
	}
	if err := g.Wait(); err != nil {
		return err
	}
	t.tellSums()
	return nil
}

// describe names the blobs by their digests.
func (t *Step) describe(digests []Digest, p stageParts) {
	for i, b := range p.rows {
		t.rows[i].Blob = Blob{digests[i], b.size}
	}
	for i, b := range p.state {
		t.state[i].Blob = Blob{digests[len(p.rows)+i], b.size}
	}
}

// addSmall stages the small objects.
func (t *Step) addSmall(ctx context.Context, g *errgroup.Group) {
	if t.args.Keep {
		g.Go(func() (err error) {
			t.mark, err = addSmall(ctx, t.batch, t.space.keepMark(t.args).bytes)
			return err
		})
	}
	g.Go(func() error {
		b, err := t.Node.Encode()
		if err == nil {
			t.node, err = addSmall(ctx, t.batch, b)
		}
		return err
	})
}

// tellSums tells the staged blobs their digests, where they want to know.
func (t *Step) tellSums() {
	for _, blobs := range [][]stagedBlob{t.rows, t.state} {
		for _, b := range blobs {
			if s, ok := b.staged.(interface{ Summed(Digest) }); ok {
				s.Summed(b.Digest)
			}
		}
	}
}

func addSmall(ctx context.Context, batch Batch, b []byte) (Staged, error) {
	return batch.Add(ctx, bytes.NewReader(b), int64(len(b)))
}

// smallSizes are those of the small objects of a step. A node is as long before its digests are known.
func smallSizes(mark small, n Node, rows, state []*body) ([]int64, error) {
	blank := func(bodies []*body) []Blob {
		out := make([]Blob, len(bodies))
		for i, b := range bodies {
			out[i].Size = b.size
		}
		return out
	}
	n.Rows, n.State = blank(rows), blank(state)
	b, err := n.Encode()
	return []int64{int64(len(mark.bytes)), int64(len(b))}, err
}

// fill stages one blob. It may be hashed meanwhile: both only read.
func (t *stagedBlob) fill(ctx context.Context, batch Batch, b *body, cores turns) (err error) {
	cores.take()
	b.end = sync.OnceFunc(cores.give)
	t.staged, err = batch.Add(ctx, b, b.size)
	b.end()
	return err
}

func sizesOf(bodies []*body) []int64 {
	out := make([]int64, len(bodies))
	for i, b := range bodies {
		out[i] = b.size
	}
	return out
}

// blobsOf are the descriptions alone: what is staged may still be on its way.
func blobsOf(staged []stagedBlob) []Blob {
	out := make([]Blob, len(staged))
	for i := range staged {
		out[i] = staged[i].Blob
	}
	return out
}

// Commit stores a staged step in the order of promise 1 and returns the node as it stands. It may be repeated after
// an error. Errors: those of Space.PutStep.
func (t *Step) Commit(ctx context.Context) (Node, Written, error) {
	var w Written
	stateName := t.space.stateName(t.args)
	wrote := make([]bool, len(t.rows)+len(t.state))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	if t.args.Keep {
		mark := t.space.keepMark(t.args)
		mark.staged = t.mark
		g.Go(func() error { return t.space.putNamed(gctx, mark) })
	}
	for i, b := range t.rows {
		g.Go(func() (err error) {
			wrote[i], err = t.space.putBlob(gctx, t.space.blobName(b.Digest), b.Size, b.staged)
			return err
		})
	}
	if !t.args.Named {
		for i, b := range t.state {
			g.Go(func() (err error) {
				wrote[len(t.rows)+i], err = t.space.putBlob(gctx, stateName(b.Digest), b.Size, b.staged)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return Node{}, w, err
	}
	for i, b := range t.args.stored(append(blobsOf(t.rows), blobsOf(t.state)...), len(t.rows)) {
		w.add(b, wrote[i])
	}
	n, err := t.space.putNode(ctx, t.Node, t.node)
	return n, w, err
}

// Close gives up the staged bytes. Closing twice is harmless.
func (t *Step) Close() error {
	if err := t.batch.Close(); err != nil {
		return fmt.Errorf("give up what was staged of chunk [%d, %d): %w", t.args.From, t.args.To, err)
	}
	return nil
}
