// Package branch makes handles for earlier boundaries of a stored document, and for its token ids alone, and tells two
// snapshots apart. It owns nothing in the store.
//
// What it promises: a fork stores its manifest and its handle, and nothing else but token ids where those are all it is of; a
// comparison reads only what the
// digests do not already show to be equal. It refuses to fork where the recurrent state was not kept, and names the
// boundaries at which it was. Functions may be called from any goroutine. Start reading at Fork and Diff.
package branch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lector/cache"
)

// ErrBoundary says that a snapshot cannot be forked at a token count; the message names those at which it can.
var ErrBoundary = errors.New("no state is kept there")

// Boundaries lists the token counts of a snapshot at which its recurrent state is kept, in order; the last is its end. Token
// ids without a state fork anywhere.
func Boundaries(ctx context.Context, s *cache.Space, m cache.Manifest) ([]int, error) {
	var out []int
	for i, c := range m.Chunks {
		if i == len(m.Chunks)-1 {
			out = append(out, c.To)
			break
		}
		n, err := s.Node(ctx, c.Key)
		if errors.Is(err, cache.ErrNotFound) {
			continue // an imported snapshot has none
		}
		if err != nil {
			return nil, err
		}
		kept, err := has(ctx, s, n.State)
		if err != nil {
			return nil, err
		}
		if kept {
			out = append(out, c.To)
		}
	}
	return out, nil
}

// has says whether every blob is there with its size.
func has(ctx context.Context, s *cache.Space, blobs []cache.Blob) (bool, error) {
	for _, b := range blobs {
		o, err := s.Store.Stat(ctx, s.TenantName()+"/blobs/"+b.Digest.String())
		if errors.Is(err, cache.ErrNotFound) || err == nil && o.Size != b.Size {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// Fork makes a handle for the state after the first tokens of a snapshot, with the snapshot's tenant and expiry.
// Errors: ErrBoundary; those of cache.Space.PutManifest.
func Fork(ctx context.Context, s *cache.Space, h cache.Handle, tokens int) (cache.Digest, cache.Handle, error) {
	m, err := s.Manifest(ctx, h.Manifest)
	if err != nil {
		return cache.Digest{}, h, err
	}
	if tokens == m.Tokens {
		return cache.Sum(h.Encode()), h, nil
	}
	if m.TokensOnly() {
		return forkTokens(ctx, s, h, m, tokens)
	}
	i := slices.IndexFunc(m.Chunks, func(c cache.Chunk) bool { return c.To == tokens })
	if i < 0 {
		return cache.Digest{}, h, refuse(ctx, s, m, tokens)
	}
	keys := make([]cache.Key, i+1)
	for j := range keys {
		keys[j] = m.Chunks[j].Key
	}
	n, nodes, err := s.Deepest(ctx, "", keys)
	if err != nil {
		return cache.Digest{}, h, err
	}
	if n != len(keys) {
		return cache.Digest{}, h, refuse(ctx, s, m, tokens)
	}
	part, digest, err := s.PutManifest(ctx, m.Identity, nodes)
	if err != nil {
		return cache.Digest{}, h, err
	}
	h.Manifest, h.Tokens = digest, part.Tokens
	d, err := s.PutHandle(ctx, h)
	return d, h, err
}

// ForkTokens makes a handle for the first token ids of a snapshot, without any state, with the snapshot's tenant and expiry.
// Errors: ErrBoundary; those of cache.Space.Tokens and PutTokens.
func ForkTokens(ctx context.Context, s *cache.Space, h cache.Handle, tokens int) (cache.Digest, cache.Handle, error) {
	m, err := s.Manifest(ctx, h.Manifest)
	if err != nil {
		return cache.Digest{}, h, err
	}
	return forkTokens(ctx, s, h, m, tokens)
}

func forkTokens(ctx context.Context, s *cache.Space, h cache.Handle, m cache.Manifest, tokens int) (cache.Digest, cache.Handle, error) {
	if tokens < 1 || tokens > m.Tokens {
		return cache.Digest{}, h, fmt.Errorf("fork the ids of %d tokens: %w: there are 1 to %d", tokens, ErrBoundary, m.Tokens)
	}
	ids, err := s.Tokens(ctx, m)
	if err != nil {
		return cache.Digest{}, h, err
	}
	_, digest, err := s.PutTokens(ctx, m.Identity, ids[:tokens])
	if err != nil {
		return cache.Digest{}, h, err
	}
	h.Manifest, h.Tokens = digest, tokens
	d, err := s.PutHandle(ctx, h)
	return d, h, err
}

// refuse says where a fork is possible.
func refuse(ctx context.Context, s *cache.Space, m cache.Manifest, tokens int) error {
	at, err := Boundaries(ctx, s, m)
	if err != nil {
		return err
	}
	words := make([]string, len(at))
	for i, n := range at {
		words[i] = strconv.Itoa(n)
	}
	return fmt.Errorf("fork at %d tokens: %w: states are kept at %s", tokens, ErrBoundary, strings.Join(words, ", "))
}
