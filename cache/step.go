package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// StepArgs is one finished chunk.
type StepArgs struct {
	Identity Identity
	Job      string // whose rolling state it is; needed unless Keep or Named
	Key      Key
	Parent   Key // zero for the first chunk
	From, To int
	Tokens   []int32  // of the chunk
	Regions  []Region // the whole state at To; only read
	Probe    Probe
	Keep     bool // keep the recurrent state; otherwise it lives until the job's next DropRolling
	Named    bool // name the recurrent state in the node and do not store it: nobody will go on from there
}

// Written counts what one step put into the store.
type Written struct {
	Blobs       int   // written
	Bytes       int64 // written
	Reused      int   // found there
	ReusedBytes int64
}

// PutStep stores one finished chunk in the order of promise 1: its rows, the recurrent state at To and the mark that
// it is kept at once, then the node. It returns the node as it stands. Repeating it changes nothing. The regions must not
// change before it returns.
// Errors: a Divergence (ErrDiverged) naming the key and both digests where another computation of the same key differs,
// ErrCorrupt where the standing node is damaged.
func (s *Space) PutStep(ctx context.Context, a StepArgs) (_ Node, w Written, err error) {
	if st, ok := s.Store.(Stager); ok { // the bytes are written while their digest is computed
		step, err := s.stage(ctx, staging{to: st, own: true}, a)
		if err != nil {
			return Node{}, w, err
		}
		n, w, err := step.Commit(ctx)
		return n, w, errors.Join(err, step.Close())
	}
	n, err := s.describe(a)
	if err != nil {
		return Node{}, w, err
	}
	var node small
	w, err = s.putBlobs(ctx, a, &n, func() (err error) {
		node, err = s.smallNode(n)
		return err
	})
	if err != nil {
		return Node{}, w, err
	}
	n, err = s.putNode(ctx, n, node)
	return n, w, err
}

// smallNode is a node on its way into the store.
func (s *Space) smallNode(n Node) (small, error) {
	b, err := n.Encode()
	return small{name: s.nodeName(n.Key), bytes: b, limit: maxNodeBytes}, err
}

// describe checks the step and makes its node, but for the blobs.
func (s *Space) describe(a StepArgs) (Node, error) {
	n, err := a.node()
	if err != nil {
		return Node{}, fmt.Errorf("store chunk [%d, %d): %w", a.From, a.To, err)
	}
	if err := s.check(a.Job); err != nil {
		return Node{}, err
	}
	if a.Keep && a.Named {
		return Node{}, fmt.Errorf("store chunk [%d, %d): its recurrent state is to be kept and not to be stored", a.From, a.To)
	}
	if a.Job == "" && !a.Keep && !a.Named {
		return Node{}, fmt.Errorf("store chunk [%d, %d): no job named for its rolling state", a.From, a.To)
	}
	return n, nil
}

// keepMark says of a step whose recurrent state is kept that it is. It goes beside the blobs: it means nothing before the
// node.
func (s *Space) keepMark(a StepArgs) small {
	return small{name: s.keepName(a.Key), bytes: []byte(a.Key.String() + "\n"), limit: 1024}
}

// stateName names the recurrent state of a step: kept, or its job's.
func (s *Space) stateName(a StepArgs) func(Digest) string {
	if a.Keep {
		return s.blobName
	}
	return func(d Digest) string { return s.rollingFolder(a.Job) + d.String() }
}

// node checks the step and describes it; its blobs are still to come.
func (a StepArgs) node() (Node, error) {
	if err := a.Identity.check(); err != nil {
		return Node{}, err
	}
	if a.From < 0 || a.To <= a.From || len(a.Tokens) != a.To-a.From {
		return Node{}, fmt.Errorf("%d tokens do not fill it", len(a.Tokens))
	}
	if (a.From == 0) != (a.Parent == Key{}) {
		return Node{}, fmt.Errorf("it begins at token %d and its parent is %s", a.From, a.Parent)
	}
	if want := nextKey(a.Identity.Producer, a.Parent, a.To, a.Tokens); a.Key != want {
		return Node{}, fmt.Errorf("its key is %s, not %s", want, a.Key)
	}
	layout, err := layoutOf(a.Regions, a.To)
	if err != nil {
		return Node{}, err
	}
	if layout.tokensOnly() {
		return Node{}, fmt.Errorf("its state holds token ids alone: those are stored without nodes") // which speak for every document
	}
	tokens := tokenBytes(a.Tokens)
	for _, seg := range rowSegments(a.Regions, a.From, a.To) {
		if seg.region == TokensRegion && !bytes.Equal(seg.data, tokens) {
			return Node{}, fmt.Errorf("region %s holds other token ids than the chunk", seg.region)
		}
	}
	if err := a.Probe.check(); err != nil {
		return Node{}, err
	}
	return Node{
		Version: NodeVersion, Key: a.Key, Producer: a.Identity.Producer, Parent: a.Parent, From: a.From, To: a.To,
		Tokens: Sum(tokens), Layout: layout, Probe: a.Probe, Losses: lossesOf(a.Regions),
	}, nil
}

// cut makes the bodies of the blobs that hold the segments back to back.
func (s *Space) cut(segs []segment) []*body {
	limit := int64(MaxBlob)
	if s.blobLimit > 0 {
		limit = s.blobLimit
	}
	total := newBody(segs).size
	var out []*body
	for off := int64(0); off < total; off += limit {
		out = append(out, newBody(window(segs, off, min(limit, total-off))))
	}
	return out
}

// putBlobs stores rows and recurrent state straight from the regions, several blobs at a time. When all digests are known it
// names the blobs in the node, and calls named while they are on their way.
func (s *Space) putBlobs(ctx context.Context, a StepArgs, n *Node, named func() error) (w Written, err error) {
	bodies := s.cut(rowSegments(a.Regions, a.From, a.To))
	first := len(bodies) // of the state
	bodies = append(bodies, s.cut(fixedSegments(a.Regions))...)
	blobs, wrote := make([]Blob, len(bodies)), make([]bool, len(bodies))
	stateName := s.stateName(a)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight + 1)
	hashed := startSums(gctx, bodies, runtime.GOMAXPROCS(0))
	defer func() {
		if werr := hashed.wait(); err == nil {
			err = werr
		}
	}()
	g.Go(func() error {
		if err := hashed.wait(); err != nil {
			return err
		}
		for i, d := range hashed.digests() {
			blobs[i] = Blob{d, bodies[i].size}
		}
		n.Rows, n.State = blobs[:first:first], blobs[first:]
		*n = n.normal()
		return named()
	})
	if a.Keep {
		g.Go(func() error { return s.putNamed(gctx, s.keepMark(a)) })
	}
	for i, b := range bodies {
		g.Go(func() (err error) {
			one := hashed.all[i]
			if <-one.known; one.err != nil {
				return one.err
			}
			b.digest = &one.digest
			if i >= first && a.Named {
				return nil
			}
			name := s.blobName(one.digest)
			if i >= first {
				name = stateName(one.digest)
			}
			wrote[i], err = s.putBlob(gctx, name, b.size, direct{s.Store, b})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return w, err
	}
	for i, b := range a.stored(blobs, first) {
		w.add(b, wrote[i])
	}
	return w, nil
}

// stored are those of a step's blobs that it puts into the store: the first ones are of its rows, the others of its state.
func (a StepArgs) stored(blobs []Blob, rows int) []Blob {
	if a.Named {
		return blobs[:rows]
	}
	return blobs
}

// direct is a body that was not staged.
type direct struct {
	store Store
	body  *body
}

func (d direct) Put(ctx context.Context, name string, how PutMode) error {
	return d.store.Put(ctx, name, d.body, d.body.size, how)
}

func (w *Written) add(b Blob, wrote bool) {
	if wrote {
		w.Blobs++
		w.Bytes += b.Size
		return
	}
	w.Reused++
	w.ReusedBytes += b.Size
}

// putNode puts a node if absent. A standing one that is whole and differs is the determinism alarm; a damaged one proves
// nothing about it.
func (s *Space) putNode(ctx context.Context, n Node, encoded small) (Node, error) {
	standing, err := s.putOnce(ctx, encoded)
	if err != nil {
		return Node{}, err
	}
	if bytes.Equal(standing, encoded.bytes) {
		return n, nil
	}
	old, err := s.decodeNode(n.Key, standing)
	if err != nil {
		return Node{}, err
	}
	return Node{}, &Divergence{Key: n.Key, From: n.From, To: n.To, Part: old.difference(n), Stored: Sum(standing), Computed: Sum(encoded.bytes)}
}

// difference names the first part in which two nodes of one key differ.
func (n Node) difference(o Node) string {
	switch {
	case n.Layout.differs(o.Layout, "the new one") != nil:
		return "layout"
	case !slices.Equal(n.Rows, o.Rows):
		return "rows"
	case !slices.Equal(n.State, o.State):
		return "recurrent state"
	case n.Tokens != o.Tokens || n.Parent != o.Parent || n.Producer != o.Producer || n.From != o.From || n.To != o.To:
		return "what they were computed from"
	}
	if !slices.Equal(n.Losses, o.Losses) {
		return "losses"
	}
	return "probe"
}

// DropRolling deletes the rolling state of the job, but for the parts of except (nil or of a zero Key: all of it).
// Only the holder of the job's lease calls it.
func (s *Space) DropRolling(ctx context.Context, job string, except *Node) error {
	if err := s.check(job); err != nil {
		return err
	}
	if job == "" {
		return refuse(ErrName, "drop rolling state: no job named")
	}
	keep := make(map[string]bool)
	if except != nil && except.Key != (Key{}) {
		for _, b := range except.State {
			keep[s.rollingFolder(job)+b.Digest.String()] = true
		}
	}
	var drop []string
	for object, err := range s.Store.List(ctx, s.rollingFolder(job)) {
		if err != nil {
			return fmt.Errorf("list rolling state of job %s: %w", job, err)
		}
		if !keep[object.Name] {
			drop = append(drop, object.Name)
		}
	}
	for _, name := range drop {
		if err := s.Store.Delete(ctx, name); err != nil {
			return fmt.Errorf("drop rolling state of job %s: %w", job, err)
		}
	}
	return nil
}
