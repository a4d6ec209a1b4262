package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Report says what Verify read and found whole.
type Report struct {
	Tokens       int   `json:"tokens"`
	Blobs        int   `json:"blobs"`
	Bytes        int64 `json:"bytes"`
	Nodes        int   `json:"nodes"`         // that stand and agree with the manifest
	NodesMissing int   `json:"nodes_missing"` // a restore needs none; only reuse of the prefix does
	KeysChecked  bool  `json:"keys_checked"`  // the state holds the token ids, and the keys are those of them
}

// Verify reads again and checks everything that a manifest reaches: every blob, the nodes that stand, the token
// ids and the keys made of them. It needs no engine and no memory for the whole state.
// Errors: as Restore; ErrDiverged where a node describes other bytes.
func (s *Space) Verify(ctx context.Context, m Manifest) (Report, error) {
	if err := s.check(""); err != nil {
		return Report{}, err
	}
	if err := m.check(); err != nil {
		return Report{}, refuse(ErrCorrupt, "verify: manifest is damaged: %v", err)
	}
	r := Report{Tokens: m.Tokens}
	ids := newTokenRows(m)
	var mu sync.Mutex
	spare := make(chan []byte, inFlight)
	for range inFlight {
		spare <- nil
	}
	err := m.EachPiece(ctx, func(ctx context.Context, p Piece) error {
		buf := <-spare
		defer func() { spare <- buf }()
		if int64(cap(buf)) < p.Blob.Size {
			buf = make([]byte, p.Blob.Size)
		}
		buf = buf[:p.Blob.Size]
		if err := s.readPiece(ctx, m, "", p, []segment{{data: buf}}); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		r.Blobs++
		r.Bytes += p.Blob.Size
		ids.take(p, buf)
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("verify %d tokens: %w", m.Tokens, err)
	}
	if r.KeysChecked, err = ids.check(); err != nil {
		return Report{}, fmt.Errorf("verify %d tokens: %w", m.Tokens, err)
	}
	if m.TokensOnly() {
		return r, nil // nodes are of states
	}
	err = s.verifyNodes(ctx, m, &r)
	return r, err
}

// verifyNodes compares the standing nodes with the manifest.
func (s *Space) verifyNodes(ctx context.Context, m Manifest, r *Report) error {
	var parent Key
	for _, c := range m.Chunks {
		n, err := s.Node(ctx, c.Key)
		switch {
		case errors.Is(err, ErrNotFound):
			r.NodesMissing++
		case err != nil:
			return fmt.Errorf("verify: %w", err)
		case n.Parent != parent || n.From != c.From || n.To != c.To || n.Tokens != c.Tokens || !slices.Equal(n.Rows, c.Rows):
			return refuse(ErrDiverged, "verify: object %s describes other rows than the manifest for tokens [%d, %d)", s.nodeName(c.Key), c.From, c.To)
		default:
			r.Nodes++
		}
		parent = c.Key
	}
	return nil
}

// Tokens reads the token ids of a stored state, checked against the keys of the manifest. Errors: ErrIncompatible where the
// state does not hold them; those of Restore.
func (s *Space) Tokens(ctx context.Context, m Manifest) ([]int32, error) {
	if err := s.check(""); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, refuse(ErrCorrupt, "read tokens: manifest is damaged: %v", err)
	}
	ids := newTokenRows(m)
	if ids.at < 0 {
		return nil, refuse(ErrIncompatible, "state of %d tokens does not hold their ids", m.Tokens)
	}
	for _, p := range m.Pieces() {
		if lo, hi := ids.span(p); lo >= hi {
			continue
		}
		b := make([]byte, p.Blob.Size)
		if err := s.readPiece(ctx, m, "", p, []segment{{data: b}}); err != nil {
			return nil, err
		}
		ids.take(p, b)
	}
	if _, err := ids.check(); err != nil {
		return nil, err
	}
	return tokensOf(ids.data), nil
}

// tokenRows gathers the bytes of the token ids out of the blobs, when the layout has them.
type tokenRows struct {
	m    Manifest
	data []byte
	at   int // place of the region in the layout; -1 for none
}

func newTokenRows(m Manifest) *tokenRows {
	at := slices.IndexFunc(m.Layout, func(s Spec) bool {
		return s.Name == TokensRegion && s.Kind == Rows && s.Lag == 0 && s.DType == "i32" && s.unit() == 4
	})
	t := &tokenRows{m: m, at: at}
	if at >= 0 {
		t.data = make([]byte, m.Layout[at].Size(m.Tokens))
	}
	return t
}

// span is where the token ids of a blob's chunk lie within the blob, in the stream of the chunk; none when lo >= hi.
func (t *tokenRows) span(p Piece) (lo, hi int64) {
	if t.at < 0 || p.State {
		return 0, 0
	}
	start := t.start(p)
	return max(start, p.Off), min(start+4*int64(p.To-p.From), p.Off+p.Blob.Size)
}

// start is where the token ids begin in the stream of a blob's chunk.
func (t *tokenRows) start(p Piece) int64 { return t.m.Layout[:t.at].chunkBytes(p.From, p.To) }

// take copies the part of a blob that holds token ids.
func (t *tokenRows) take(p Piece, b []byte) {
	if lo, hi := t.span(p); lo < hi {
		start := t.start(p)
		copy(t.data[4*p.From : 4*p.To][lo-start:hi-start], b[lo-p.Off:hi-p.Off])
	}
}

// check compares the ids with the digests and the keys of the chunks.
func (t *tokenRows) check() (bool, error) {
	if t.at < 0 {
		return false, nil
	}
	var parent Key
	for _, c := range t.m.Chunks {
		b := t.data[4*c.From : 4*c.To]
		if Sum(b) != c.Tokens {
			return false, refuse(ErrCorrupt, "tokens [%d, %d): stored token ids are not those of the manifest", c.From, c.To)
		}
		if key := nextKey(t.m.Identity.Producer, parent, c.To, tokensOf(b)); key != c.Key {
			return false, refuse(ErrCorrupt, "tokens [%d, %d): their key is %s, and the manifest says %s", c.From, c.To, key, c.Key)
		}
		parent = c.Key
	}
	return true, nil
}
