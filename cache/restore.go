package cache

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
)

// inFlight is how many blobs are read or written at a time: enough to hide a store's latency.
const inFlight = 4

// Piece is one blob of a manifest and what it holds.
type Piece struct {
	Blob     Blob
	State    bool  // recurrent state, else rows
	From, To int   // tokens of the rows; of recurrent state, To is the boundary
	Off      int64 // in the stream of its rows or state
}

// Pieces lists the blobs of a manifest in order.
func (m Manifest) Pieces() []Piece {
	var out []Piece
	for _, c := range m.Chunks {
		off := int64(0)
		for _, b := range c.Rows {
			out = append(out, Piece{Blob: b, From: c.From, To: c.To, Off: off})
			off += b.Size
		}
	}
	off := int64(0)
	for _, b := range m.State {
		out = append(out, Piece{Blob: b, State: true, To: m.Tokens, Off: off})
		off += b.Size
	}
	return out
}

// pieceName names a blob and what it holds, for messages.
func (s *Space) pieceName(p Piece) string {
	if p.State {
		return fmt.Sprintf("blob %s (recurrent state at token %d)", s.blobName(p.Blob.Digest), p.To)
	}
	return fmt.Sprintf("blob %s (rows of tokens [%d, %d))", s.blobName(p.Blob.Digest), p.From, p.To)
}

// contents names the regions that a blob holds a part of, for messages.
func (m Manifest) contents(p Piece) string {
	var names []string
	at := int64(0)
	for _, spec := range m.Layout {
		size := int64(0)
		switch {
		case p.State && spec.Kind == Fixed:
			size = spec.unit()
		case !p.State && spec.Kind == Rows:
			size = spec.Size(p.To) - spec.Size(p.From)
		}
		if at < p.Off+p.Blob.Size && at+size > p.Off {
			names = append(names, spec.Name)
		}
		at += size
	}
	switch len(names) {
	case 0:
		return "no region"
	case 1:
		return "region " + names[0]
	}
	return "regions " + names[0] + " to " + names[len(names)-1]
}

// Restore reads every blob of the manifest into the regions, whose Data has its full size and is filled in place.
// Regions must be those of the manifest's layout exactly. The size and the digest of a blob are checked as it lies there,
// since another copy would cost as much as reading; what does not pass is cleared, and after an error the regions hold a
// part of the state and must be given up. A job also has
// its rolling state looked at. Token ids are compared with tokens when given. It returns the bytes read.
// Errors: ErrIncompatible naming the region, ErrNotFound and ErrCorrupt naming the blob, its regions and tokens.
func (s *Space) Restore(ctx context.Context, m Manifest, job string, tokens []int32, regions []Region) (int64, error) {
	if err := s.check(job); err != nil {
		return 0, err
	}
	if err := m.check(); err != nil {
		return 0, refuse(ErrCorrupt, "restore: manifest is damaged: %v", err)
	}
	if err := m.fits(regions); err != nil {
		return 0, fmt.Errorf("restore %d tokens: %w", m.Tokens, err)
	}
	if err := m.sameTokens(tokens); err != nil {
		return 0, fmt.Errorf("restore %d tokens: %w", m.Tokens, err)
	}
	fixed := fixedSegments(regions)
	err := m.EachPiece(ctx, func(ctx context.Context, p Piece) error {
		segs := fixed
		if !p.State {
			segs = rowSegments(regions, p.From, p.To)
		}
		return s.readPiece(ctx, m, job, p, window(segs, p.Off, p.Blob.Size))
	})
	if err != nil {
		return 0, fmt.Errorf("restore %d tokens: %w", m.Tokens, err)
	}
	if err := m.checkTokenRows(regions); err != nil {
		return 0, fmt.Errorf("restore %d tokens: %w", m.Tokens, err)
	}
	return m.Bytes, nil
}

// fits says whether the regions are those of the layout and have their full size.
func (m Manifest) fits(regions []Region) error {
	got := make(Layout, len(regions))
	for i, r := range regions {
		got[i] = r.Spec()
	}
	if err := m.Layout.differs(got, "this model"); err != nil {
		return err
	}
	for i, r := range regions {
		if want := m.Layout[i].Size(m.Tokens); int64(len(r.Data)) != want {
			return refuse(ErrIncompatible, "region %s: snapshot of %d tokens has %d bytes, this model holds %d", r.Name, m.Tokens, want, len(r.Data))
		}
	}
	return nil
}

// sameTokens compares token ids with the digests of the chunks; nil compares nothing.
func (m Manifest) sameTokens(tokens []int32) error {
	if tokens == nil {
		return nil
	}
	if len(tokens) != m.Tokens {
		return refuse(ErrIncompatible, "snapshot has %d tokens, and %d were asked for", m.Tokens, len(tokens))
	}
	for _, c := range m.Chunks {
		if got := Sum(tokenBytes(tokens[c.From:c.To])); got != c.Tokens {
			return refuse(ErrIncompatible, "tokens [%d, %d): snapshot was made of other token ids", c.From, c.To)
		}
	}
	return nil
}

// checkTokenRows compares the restored token ids, where the layout has them, with the digests of the chunks.
func (m Manifest) checkTokenRows(regions []Region) error {
	for _, c := range m.Chunks {
		for _, seg := range rowSegments(regions, c.From, c.To) {
			if seg.region == TokensRegion && Sum(seg.data) != c.Tokens {
				return refuse(ErrCorrupt, "region %s, tokens [%d, %d): stored token ids are not those of the manifest", seg.region, c.From, c.To)
			}
		}
	}
	return nil
}

// EachPiece calls do for every blob of a manifest once, several at a time. The first error ends it.
func (m Manifest) EachPiece(ctx context.Context, do func(context.Context, Piece) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for _, p := range m.Pieces() {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return do(gctx, p) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// readPiece fills the segments, together of the blob's size, from the first place that has the blob whole.
func (s *Space) readPiece(ctx context.Context, m Manifest, job string, p Piece, segs []segment) error {
	if !p.State {
		job = "" // rows are never rolling
	}
	var first error
	for _, name := range s.places(job, p.Blob.Digest) {
		err := s.readBlob(ctx, name, p.Blob, segs)
		if err == nil {
			return nil
		}
		if first == nil || errors.Is(first, ErrNotFound) {
			first = err
		}
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt) {
			break
		}
	}
	for _, seg := range segs {
		clear(seg.data)
	}
	what := fmt.Sprintf("%s, %s", s.pieceName(p), m.contents(p))
	switch {
	case errors.Is(first, ErrNotFound):
		return refuse(ErrNotFound, "%s is missing: read the document again with lector ingest", what)
	case errors.Is(first, ErrCorrupt):
		return refuse(ErrCorrupt, "%s is damaged: %v: %s", what, first, s.remedy())
	}
	return fmt.Errorf("read %s: %w", what, first)
}

// Remedied is a Store that says what is to be done about an object of its that is damaged.
type Remedied interface {
	// Remedy is that, as the end of a message.
	Remedy() string
}

// remedy is what helps against a damaged blob: in a store of the user's own, to make it again.
func (s *Space) remedy() string {
	if r, ok := s.Store.(Remedied); ok {
		return r.Remedy()
	}
	return "delete it, then read the document again with lector ingest"
}

// readBlob fills the segments and checks the size, then the digest, which is computed while the bytes are at hand.
func (s *Space) readBlob(ctx context.Context, name string, b Blob, segs []segment) error {
	r, err := s.Store.Get(ctx, name, 0, -1)
	if err != nil {
		return err
	}
	got, err := fill(ContextReader(ctx, r), b, segs)
	if err == nil {
		err = atEnd(r, b.Size)
	}
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if got != b.Digest {
		return refuse(ErrCorrupt, "its bytes have the digest %s", got)
	}
	return nil
}

// readPiece is how much is read at a time: what was read last is still near when it is hashed.
const readPiece = 256 << 10

// fill reads a blob into the segments and returns the digest of its bytes, which is computed beside the reading: each
// takes about as long as the other, and one blob may be most of a state.
func fill(r io.Reader, b Blob, segs []segment) (Digest, error) {
	if b.Size <= readPiece { // one read: nothing to compute beside
		h := sha256.New()
		err := readSegments(r, b, segs, func(data []byte) { h.Write(data) }) // a hash takes everything
		return Digest(h.Sum(nil)), err
	}
	pieces, summed := make(chan []byte, 4), make(chan Digest, 1)
	go func() {
		h := sha256.New()
		for data := range pieces {
			hashPieces(h, data)
		}
		summed <- Digest(h.Sum(nil))
	}()
	err := readSegments(r, b, segs, func(data []byte) { pieces <- data })
	close(pieces)
	return <-summed, err // waited for in any case: the bytes belong to the caller
}

// readSegments fills the segments piece by piece and hands each piece on.
func readSegments(r io.Reader, b Blob, segs []segment, read func([]byte)) error {
	total := 0
	for _, seg := range segs {
		for data := seg.data; len(data) > 0; {
			n, err := io.ReadFull(r, data[:min(len(data), readPiece)])
			total += n
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				err = refuse(ErrCorrupt, "it has %d bytes, not %d", total, b.Size)
			}
			if err != nil {
				return err
			}
			read(data[:n])
			data = data[n:]
		}
	}
	return nil
}

// atEnd refuses an object that goes on after its size.
func atEnd(r io.Reader, size int64) error {
	var one [1]byte
	switch _, err := io.ReadFull(r, one[:]); {
	case err == nil:
		return refuse(ErrCorrupt, "it has more than its %d bytes", size)
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

// ContextReader is r, stopping between reads when the context is over.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
