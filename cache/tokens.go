package cache

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// maxDocumentTokens bounds the token ids of one document.
const maxDocumentTokens = maxDocumentBytes / 4

// TokensOnly says that a manifest holds the token ids and no state: whoever goes on from it reads them again. Its layout has
// the tokens region alone. It is a pure function of the identity and the ids, like a key, whoever made it.
func (m Manifest) TokensOnly() bool { return m.Layout.tokensOnly() }

func (l Layout) tokensOnly() bool { return len(l) == 1 && l[0].equal(idsAlone()) }

func idsAlone() Spec { return Spec{Name: TokensRegion, DType: "i32", Shape: []int{}, Kind: Rows} }

// noProbe is the probe of a manifest without state.
func noProbe() Probe { return Probe{Top: []TopLogit{}, Next: -1, Draft: -1} }

// NewTokensManifest describes token ids without a state. It stores nothing.
func NewTokensManifest(id Identity, tokens []int32) (Manifest, error) {
	if len(tokens) == 0 || len(tokens) > maxDocumentTokens {
		return Manifest{}, fmt.Errorf("make manifest: %d tokens, not 1 to %d", len(tokens), maxDocumentTokens)
	}
	if i := slices.IndexFunc(tokens, func(t int32) bool { return t < 0 }); i >= 0 {
		return Manifest{}, fmt.Errorf("make manifest: token %d has the id %d", i, tokens[i])
	}
	m := Manifest{
		Version: ManifestVersion, Identity: id, Tokens: len(tokens), Bytes: 4 * int64(len(tokens)),
		Layout: Layout{idsAlone()}, Probe: noProbe(),
	}
	ends := Boundaries(len(tokens), id.Grid)
	from := 0
	for i, key := range Keys(id.Producer, tokens, ends) {
		d := Sum(tokenBytes(tokens[from:ends[i]]))
		m.Chunks = append(m.Chunks, Chunk{Key: key, From: from, To: ends[i], Tokens: d, Rows: []Blob{{d, 4 * int64(ends[i]-from)}}})
		from = ends[i]
	}
	m = m.normal()
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("make manifest: %w", err)
	}
	return m, nil
}

// checkTokensOnly wants the one form that a manifest without state has: grid cells, each of one blob whose digest is that
// of the cell's ids, and no probe.
func (m Manifest) checkTokensOnly() error {
	if m.Tokens > maxDocumentTokens {
		return fmt.Errorf("it holds %d token ids, more than %d", m.Tokens, maxDocumentTokens)
	}
	for i, c := range m.Chunks {
		if c.To != min((i+1)*m.Identity.Grid, m.Tokens) || len(c.Rows) != 1 || c.Rows[0].Digest != c.Tokens {
			return fmt.Errorf("chunk [%d, %d) is not that of token ids alone on a grid of %d", c.From, c.To, m.Identity.Grid)
		}
	}
	if p := m.Probe; len(p.Top) != 0 || p.Next != -1 || p.Draft != -1 {
		return fmt.Errorf("it holds token ids alone, and a probe of a state")
	}
	return nil
}

// PutTokens stores token ids without a state, in the cells of the grid so that documents share them, then their manifest,
// which it reads back and verifies like PutManifest. Storing them again changes nothing.
func (s *Space) PutTokens(ctx context.Context, id Identity, tokens []int32) (Manifest, Digest, error) {
	if err := s.check(""); err != nil {
		return Manifest{}, Digest{}, err
	}
	m, err := NewTokensManifest(id, tokens)
	if err != nil {
		return Manifest{}, Digest{}, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for _, c := range m.Chunks {
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			b := newBody([]segment{{TokensRegion, tokenBytes(tokens[c.From:c.To])}})
			b.digest = &c.Tokens
			_, err := s.putBlob(gctx, s.blobName(c.Tokens), b.size, direct{s.Store, b})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Manifest{}, Digest{}, fmt.Errorf("store %d token ids: %w", len(tokens), err)
	}
	return s.putManifest(ctx, m)
}

// Restores says whether an engine may go on from a manifest: as CompatibleSalted, but token ids without a state are of no
// numeric class.
func (want Identity) Restores(m Manifest, older [][]byte) error {
	have := m.Identity
	if m.TokensOnly() {
		have.Class, have.Grid = want.Class, want.Grid
	}
	return want.CompatibleSalted(have, older)
}
