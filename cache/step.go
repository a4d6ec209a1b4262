package cache

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// StepArgs is one finished chunk.
type StepArgs struct {
	Identity Identity
	Job      string // whose rolling state it is; needed unless Keep
	Key      Key
	Parent   Key // zero for the first chunk
	From, To int
	Tokens   []int32  // of the chunk
	Regions  []Region // the whole state at To; only read
	Probe    Probe
	Keep     bool // keep the recurrent state; otherwise it lives until the job's next DropRolling
}

// Written counts what one step put into the store.
type Written struct {
	Blobs       int   // written
	Bytes       int64 // written
	Reused      int   // found there
	ReusedBytes int64
}

// PutStep stores one finished chunk in the order of promise 1: its rows, the recurrent state at To, the mark that
// it is kept, then the node. It returns the node as it stands. Repeating it changes nothing.
// Errors: ErrDiverged naming the key and both digests where another computation of the same key differs,
// ErrCorrupt where the standing node is damaged.
func (s *Space) PutStep(ctx context.Context, a StepArgs) (Node, Written, error) {
	var w Written
	n, err := a.node()
	if err != nil {
		return Node{}, w, fmt.Errorf("store chunk [%d, %d): %w", a.From, a.To, err)
	}
	if err := s.check(a.Job); err != nil {
		return Node{}, w, err
	}
	if a.Job == "" && !a.Keep {
		return Node{}, w, fmt.Errorf("store chunk [%d, %d): no job named for its rolling state", a.From, a.To)
	}
	if n.Rows, err = s.putStream(ctx, rowSegments(a.Regions, a.From, a.To), s.blobName, &w); err != nil {
		return Node{}, w, err
	}
	stateName := s.blobName
	if !a.Keep {
		stateName = func(d Digest) string { return s.rollingFolder(a.Job) + d.String() }
	}
	if n.State, err = s.putStream(ctx, fixedSegments(a.Regions), stateName, &w); err != nil {
		return Node{}, w, err
	}
	if a.Keep {
		if err := s.putNamed(ctx, s.keepName(a.Key), []byte(a.Key.String()+"\n"), 1024); err != nil {
			return Node{}, w, err
		}
	}
	n, err = s.putNode(ctx, n)
	return n, w, err
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
		Tokens: Sum(tokens), Layout: layout, Probe: a.Probe,
	}, nil
}

// putStream stores the segments back to back, cut into blobs.
func (s *Space) putStream(ctx context.Context, segs []segment, name func(Digest) string, w *Written) ([]Blob, error) {
	limit := int64(MaxBlob)
	if s.blobLimit > 0 {
		limit = s.blobLimit
	}
	total := int64(0)
	for _, seg := range segs {
		total += int64(len(seg.data))
	}
	var blobs []Blob
	buf := make([]byte, 0, min(limit, total))
	for off := int64(0); off < total; off += limit {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		buf = buf[:0]
		for _, seg := range window(segs, off, min(limit, total-off)) {
			buf = append(buf, seg.data...)
		}
		b := Blob{Sum(buf), int64(len(buf))}
		wrote, err := s.putBlob(ctx, name(b.Digest), buf)
		if err != nil {
			return nil, err
		}
		w.add(b, wrote)
		blobs = append(blobs, b)
	}
	return blobs, nil
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

// putNode puts the node if absent. A standing one that is whole and differs is the determinism alarm; a damaged
// one proves nothing about it.
func (s *Space) putNode(ctx context.Context, n Node) (Node, error) {
	n = n.normal()
	b, err := n.Encode()
	if err != nil {
		return Node{}, err
	}
	standing, err := s.putOnce(ctx, s.nodeName(n.Key), b, maxNodeBytes)
	if err != nil {
		return Node{}, err
	}
	if bytes.Equal(standing, b) {
		return n, nil
	}
	old, err := s.decodeNode(n.Key, standing)
	if err != nil {
		return Node{}, err
	}
	return Node{}, refuse(ErrDiverged, "key %s of tokens [%d, %d) was computed to two different states (%s): "+
		"the stored node has the digest %s, this one has %s", n.Key, n.From, n.To, old.difference(n), Sum(standing), Sum(b))
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
