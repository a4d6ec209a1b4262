package monitor

import (
	"context"
	"io"

	"lector/cache"
)

// meteredStager is a store that can stage, with what is put from there counted, too.
type meteredStager struct {
	meteredStore
	stager cache.Stager
}

// Stage is the store's own; what is staged is counted when it is put.
func (s meteredStager) Stage(ctx context.Context, sizes []int64) (cache.Batch, error) {
	b, err := s.stager.Stage(ctx, sizes)
	if err != nil {
		return nil, err
	}
	return meteredBatch{b, s.meteredStore}, nil
}

type meteredBatch struct {
	cache.Batch
	store meteredStore
}

// Add remembers the size, to count it with the put.
func (b meteredBatch) Add(ctx context.Context, body io.ReadSeeker, size int64) (cache.Staged, error) {
	staged, err := b.Batch.Add(ctx, body, size)
	if err != nil {
		return nil, err
	}
	return meteredStaged{staged, b.store, size}, nil
}

// PutAll counts as a put of each.
func (b meteredBatch) PutAll(ctx context.Context, names []cache.Naming) error {
	var sizes []int64
	j, inner, err := cache.Inner(b.Batch, names, func(s cache.Staged) (cache.Staged, bool) {
		t, ok := s.(meteredStaged)
		sizes = append(sizes, t.size)
		return t.Staged, ok
	})
	if err != nil {
		return err
	}
	began := b.store.m.now()
	err = j.PutAll(ctx, inner)
	for _, size := range sizes {
		b.store.counted(size, began, err)
	}
	return err
}

type meteredStaged struct {
	cache.Staged
	store meteredStore
	size  int64
}

// Put counts as a put of the store does.
func (t meteredStaged) Put(ctx context.Context, name string, how cache.PutMode) error {
	return t.store.put(t.size, func() error { return t.Staged.Put(ctx, name, how) })
}
