package tracing

import (
	"context"
	"io"

	"lector/cache"
)

// tracedStager is a store that can stage, with what is put from there drawn, too.
type tracedStager struct {
	tracedStore
	stager cache.Stager
}

// Stage is the store's own; what is staged is drawn when it is put.
func (s tracedStager) Stage(ctx context.Context, sizes []int64) (cache.Batch, error) {
	b, err := s.stager.Stage(ctx, sizes)
	if err != nil {
		return nil, err
	}
	return tracedBatch{b, s.tracedStore}, nil
}

type tracedBatch struct {
	cache.Batch
	store tracedStore
}

// Add remembers the size, to say it with the put.
func (b tracedBatch) Add(ctx context.Context, body io.ReadSeeker, size int64) (cache.Staged, error) {
	staged, err := b.Batch.Add(ctx, body, size)
	if err != nil {
		return nil, err
	}
	return tracedStaged{staged, b.store, size}, nil
}

// PutAll is drawn as one put, of the last of the names.
func (b tracedBatch) PutAll(ctx context.Context, names []cache.Naming) error {
	size := int64(0)
	j, inner, err := cache.Inner(b.Batch, names, func(s cache.Staged) (cache.Staged, bool) {
		t, ok := s.(tracedStaged)
		size += t.size
		return t.Staged, ok
	})
	if err != nil {
		return err
	}
	return b.store.put(ctx, names[len(names)-1].Name, size, func(ctx context.Context) error { return j.PutAll(ctx, inner) })
}

type tracedStaged struct {
	cache.Staged
	store tracedStore
	size  int64
}

// Put is drawn as a put of the store is.
func (s tracedStaged) Put(ctx context.Context, name string, how cache.PutMode) error {
	return s.store.put(ctx, name, s.size, func(ctx context.Context) error { return s.Staged.Put(ctx, name, how) })
}
