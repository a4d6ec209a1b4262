package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"lector/cache"
)

// taken is what the blobs of a snapshot take in the store.
type taken struct {
	Blobs      int   `json:"blobs"`
	Compressed int   `json:"compressed"`
	Missing    int   `json:"missing"`
	Bytes      int64 `json:"bytes"`
}

// sizesAtOnce is how many blobs are asked for at a time.
const sizesAtOnce = 8

// storedSizes asks for every blob of a manifest, equal ones once.
func storedSizes(ctx context.Context, space *cache.Space, m cache.Manifest) (taken, error) {
	var t taken
	var mu sync.Mutex
	seen := map[cache.Digest]bool{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(sizesAtOnce)
	for _, p := range m.Pieces() {
		if seen[p.Blob.Digest] {
			continue
		}
		seen[p.Blob.Digest] = true
		g.Go(func() error {
			size, compressed, err := storedSize(gctx, space.Store, space.TenantName()+"/blobs/"+p.Blob.Digest.String())
			mu.Lock()
			defer mu.Unlock()
			t.Blobs++
			switch {
			case errors.Is(err, cache.ErrNotFound):
				t.Missing++
				return nil
			case err != nil:
				return err
			case compressed:
				t.Compressed++
			}
			t.Bytes += size
			return nil
		})
	}
	return t, g.Wait()
}

// storedSize is what one blob takes.
func storedSize(ctx context.Context, store cache.Store, name string) (size int64, compressed bool, err error) {
	if s, ok := store.(interface {
		Stored(context.Context, string) (int64, bool, error)
	}); ok {
		return s.Stored(ctx, name)
	}
	o, err := store.Stat(ctx, name)
	return o.Size, false, err
}

// of says it beside the state's own size.
func (t taken) of(state int64) string {
	text := fmt.Sprintf("%s in %d blobs", size(t.Bytes), t.Blobs)
	if t.Compressed > 0 {
		text += fmt.Sprintf(", %d of them compressed: %.3f of the state", t.Compressed, float64(t.Bytes)/float64(max(state, 1)))
	}
	if t.Missing > 0 {
		text += fmt.Sprintf(", %d missing", t.Missing)
	}
	return text
}
