package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"
)

// ErrRoom says that a chunk is larger than a Stager will ever have room for; the message says by how much.
var ErrRoom = errors.New("larger than the whole spool")

// Stager keeps the bytes of a chunk safe before they have a name in the store, so that the sequence they came from
// may move on while the store takes them. A spool on a disk is one; a Store is one where it can name bytes that it
// has written already. It may be used from any goroutine.
type Stager interface {
	// Stage opens a batch with room for objects of these sizes; a Store has it for any that are no larger together. It
	// waits while other batches hold the room, until ctx ends. What will never fit is ErrRoom.
	Stage(ctx context.Context, sizes []int64) (Batch, error)
}

// Batch is one chunk's room in a Stager. It may be used from any goroutine.
type Batch interface {
	// Add keeps size bytes of body, one of the batch's sizes, and reads body from its start, never after it has returned.
	// What the batch has no room for is an error.
	Add(ctx context.Context, body io.ReadSeeker, size int64) (Staged, error)
	// Sync returns when everything that was added before would survive a power cut. Nothing is put before that.
	Sync(ctx context.Context) error
	// Close gives back the room and what was not put. Closing twice is harmless.
	Close() error
}

// Joint is a Batch that can give several of its objects their names at once.
type Joint interface {
	Batch
	// PutAll is Sync, then Put of each with IfAbsent, in this order, and returns when all are durable, which takes less time.
	// After a crash on the way as many of the first ones are there as it got to, or all. ErrExists says that a name is
	// taken: none or the first ones are there, and a caller goes on with Sync and Put. So does one who is told
	// errors.ErrUnsupported.
	PutAll(ctx context.Context, names []Naming) error
}

// Naming is a name for a staged object.
type Naming struct {
	Staged Staged
	Name   string
	Digest Digest // of its bytes, so that a Joint can tell whether a power cut has left them; zero: not known
}

// putAll is PutAll of a batch that can. It says whether it did, and else leaves it to the caller to put each.
func putAll(ctx context.Context, b any, names []Naming) (bool, error) {
	j, ok := b.(Joint)
	if !ok {
		return false, nil
	}
	err := j.PutAll(ctx, names)
	if errors.Is(err, ErrExists) || errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// Inner is what PutAll has to name in a batch that another wraps without changing bytes: unwrap takes a staged object out of the other's. Where it
// cannot, or the batch is no Joint, the error is errors.ErrUnsupported.
func Inner(b Batch, names []Naming, unwrap func(Staged) (Staged, bool)) (Joint, []Naming, error) {
	j, ok := b.(Joint)
	inner := make([]Naming, len(names))
	for i, n := range names {
		var one bool
		inner[i] = n
		inner[i].Staged, one = unwrap(n.Staged)
		ok = ok && one
	}
	if !ok {
		return nil, nil, errors.ErrUnsupported
	}
	return j, inner, nil
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
	own   bool // of the store itself
	rows  []stagedBlob
	state []stagedBlob

	mark, node small // the small objects, staged where the store itself keeps what is staged
}

type stagedBlob struct {
	Blob
	name   string
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
	return s.stage(ctx, staging{to: st, own: s.Spool == nil}, a)
}

// staging says where a step is staged.
type staging struct {
	to   Stager
	own  bool  // it is the store itself: the small objects are staged, too, so that a name is all that they need later
	more int64 // room that is to be left there
}

func (s *Space) stage(ctx context.Context, to staging, a StepArgs) (*Step, error) {
	n, err := s.describe(a)
	if err != nil {
		return nil, err
	}
	p := stageParts{rows: s.cut(rowSegments(a.Regions, a.From, a.To)), state: s.cut(fixedSegments(a.Regions))}
	step := &Step{space: s, args: a, rows: make([]stagedBlob, len(p.rows)), state: make([]stagedBlob, len(p.state))}
	step.mark = s.keepMark(a)
	step.args.Regions = nil // they belong to the sequence, which moves on
	hashing, stop := context.WithCancel(ctx)
	writers, hashers := share()
	p.hashed = startSums(hashing, slices.Concat(p.rows, p.state), hashers)
	err = step.open(ctx, to, p)
	if err == nil {
		if err = step.fill(ctx, n, p, writers); err != nil {
			err = errors.Join(err, step.batch.Close())
		}
	}
	stop()
	p.hashed.wait() // the bytes belong to a sequence; what went wrong is known
	if err != nil {
		return nil, fmt.Errorf("stage chunk [%d, %d): %w", a.From, a.To, err)
	}
	return step, nil
}

// stageParts is what a step stages.
type stageParts struct {
	rows, state []*body
	hashed      *sums // the digests of both
}

// open takes the room that a step needs.
func (t *Step) open(ctx context.Context, to staging, p stageParts) (err error) {
	sizes := sizesOf(p.rows)
	if !t.args.Named {
		sizes = append(sizes, sizesOf(p.state)...)
	}
	if t.own = to.own; t.own {
		sizes = append(sizes, int64(len(t.mark.bytes)), maxNodeBytes, to.more)
	}
	t.batch, err = to.to.Stage(ctx, sizes)
	return err
}

// fill stages the blobs while they are hashed, and describes them. The disk is at work from the first blob on. What lies in
// the store itself is synced when it is named: a crash before that takes no more than one behind it would.
func (t *Step) fill(ctx context.Context, n Node, p stageParts, writers int) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	write := func(blobs []stagedBlob, bodies []*body) {
		for i, b := range bodies {
			g.Go(func() (err error) { // it may be hashed meanwhile: both only read
				blobs[i].staged, err = t.batch.Add(gctx, b, b.size)
				return err
			})
		}
	}
	write(t.rows, p.rows)
	if !t.args.Named {
		write(t.state, p.state)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	p.hashed.work()
	if err := p.hashed.wait(); err != nil {
		return err
	}
	t.describe(p.hashed.digests(), p)
	n.Rows, n.State = blobsOf(t.rows), blobsOf(t.state)
	t.Node = n.normal()
	if err := t.addSmall(ctx); err != nil {
		return err
	}
	if !t.own {
		if err := t.batch.Sync(ctx); err != nil {
			return err
		}
	}
	t.tellSums()
	return nil
}

// describe describes the blobs by their digests, and names them.
func (t *Step) describe(digests []Digest, p stageParts) {
	stateName := t.space.stateName(t.args)
	for i, b := range p.rows {
		t.rows[i].Blob, t.rows[i].name = Blob{digests[i], b.size}, t.space.blobName(digests[i])
	}
	for i, b := range p.state {
		d := digests[len(p.rows)+i]
		t.state[i].Blob, t.state[i].name = Blob{d, b.size}, stateName(d)
	}
}

// stored are the blobs that the step puts into the store.
func (t *Step) stored() []stagedBlob {
	if t.args.Named {
		return t.rows
	}
	return slices.Concat(t.rows, t.state)
}

// addSmall makes the small objects, and stages them where that is of use.
func (t *Step) addSmall(ctx context.Context) (err error) {
	if t.node, err = t.space.smallNode(t.Node); err != nil || !t.own {
		return err
	}
	if t.args.Keep {
		if err := t.mark.stage(ctx, t.batch); err != nil {
			return err
		}
	}
	return t.node.stage(ctx, t.batch)
}

// tellSums tells the staged blobs their digests, where they want to know.
func (t *Step) tellSums() {
	for _, b := range t.stored() {
		if s, ok := b.staged.(interface{ Summed(Digest) }); ok {
			s.Summed(b.Digest)
		}
	}
}

// stage adds a small object to a batch.
func (o *small) stage(ctx context.Context, batch Batch) (err error) {
	o.staged, err = batch.Add(ctx, bytes.NewReader(o.bytes), int64(len(o.bytes)))
	return err
}

// naming is the object, staged, under its name.
func (o small) naming() Naming { return Naming{o.staged, o.name, Sum(o.bytes)} }

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
	l, _, err := t.commit(ctx)
	return l.Node, l.Written, err
}

// commit is Commit, and stores more small objects behind the node where all can be stored at once. It says whether it did.
func (t *Step) commit(ctx context.Context, more ...small) (l Last, done bool, err error) {
	if done, err = t.putAll(ctx, more); err != nil {
		return l, false, err
	}
	wrote := slices.Repeat([]bool{done}, len(t.stored()))
	if done {
		l.Node = t.Node
	} else if err = t.batch.Sync(ctx); err == nil {
		l.Node, err = t.putEach(ctx, wrote)
	}
	if err == nil {
		for i, b := range t.stored() {
			l.Written.add(b.Blob, wrote[i])
		}
	}
	return l, done, err
}

// putAll stores all of a step at once, and more, where that can be done and nothing of it is there.
func (t *Step) putAll(ctx context.Context, more []small) (bool, error) {
	if t.node.staged == nil {
		return false, nil
	}
	var names []Naming
	for _, b := range t.stored() {
		names = append(names, Naming{b.staged, b.name, b.Digest})
	}
	if t.args.Keep {
		names = append(names, t.mark.naming())
	}
	names = append(names, t.node.naming())
	for _, o := range more {
		names = append(names, o.naming())
	}
	return putAll(ctx, t.batch, names)
}

// putEach stores a step object by object, and says of each blob whether it wrote it.
func (t *Step) putEach(ctx context.Context, wrote []bool) (Node, error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	if t.args.Keep {
		g.Go(func() error { return t.space.putNamed(gctx, t.mark) })
	}
	for i, b := range t.stored() {
		g.Go(func() (err error) {
			wrote[i], err = t.space.putBlob(gctx, b.name, b.Size, b.staged)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Node{}, err
	}
	return t.space.putNode(ctx, t.Node, t.node)
}

// Close gives up the staged bytes. Closing twice is harmless.
func (t *Step) Close() error {
	if err := t.batch.Close(); err != nil {
		return fmt.Errorf("give up what was staged of chunk [%d, %d): %w", t.args.From, t.args.To, err)
	}
	return nil
}
