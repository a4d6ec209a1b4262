package cachetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"lector/cache"
)

// Spool is a cache.Stager in memory.
type Spool struct {
	Store cache.Store // what is put from it
	// BeforeAdd runs before bytes are kept; an error fails the call.
	BeforeAdd func(ctx context.Context, size int64) error

	quota int64
	room  *semaphore.Weighted

	mu    sync.Mutex
	bytes int64
	most  int64
	open  int
}

var _ cache.Stager = (*Spool)(nil)

// NewSpool returns an empty one with room for quota bytes.
func NewSpool(store cache.Store, quota int64) *Spool {
	return &Spool{Store: store, quota: quota, room: semaphore.NewWeighted(quota)}
}

// Bytes is what open batches keep now, and the most that they ever did.
func (s *Spool) Bytes() (now, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, s.most
}

// Open is the number of batches that are not closed.
func (s *Spool) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *Spool) count(bytes int64, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += bytes
	s.most = max(s.most, s.bytes)
	s.open += open
}

// Stage implements cache.Stager.
func (s *Spool) Stage(ctx context.Context, sizes []int64) (cache.Batch, error) {
	b := &memoryBatch{spool: s, sizes: slices.Clone(sizes)}
	for _, n := range sizes {
		b.need += n
	}
	if b.need > s.quota {
		return nil, fmt.Errorf("stage %d bytes where %d are the most: %w", b.need, s.quota, cache.ErrRoom)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.room.Acquire(ctx, b.need); err != nil {
		return nil, err
	}
	s.count(0, 1)
	return b, nil
}

type memoryBatch struct {
	spool *Spool
	need  int64

	mu     sync.Mutex
	sizes  []int64 // not added yet
	kept   int64
	added  int // objects
	synced int // of those, the first ones
	closed bool
}

// Add implements cache.Batch.
func (b *memoryBatch) Add(ctx context.Context, body io.ReadSeeker, size int64) (cache.Staged, error) {
	if hook := b.spool.BeforeAdd; hook != nil {
		if err := hook(ctx, size); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.sizes, size)
	if b.closed || i < 0 {
		return nil, fmt.Errorf("stage %d bytes: the batch has no room for them", size)
	}
	b.sizes = slices.Delete(b.sizes, i, i+1)
	var kept bytes.Buffer
	if err := cache.CopyExactly(ctx, &kept, body, size); err != nil {
		return nil, err
	}
	b.kept += size
	b.spool.count(size, 0)
	b.added++
	return &memoryStaged{b, b.added, kept.Bytes()}, nil
}

// Sync implements cache.Batch.
func (b *memoryBatch) Sync(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	b.synced = b.added
	return nil
}

// Close implements cache.Batch.
func (b *memoryBatch) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.spool.count(-b.kept, -1)
		b.spool.room.Release(b.need)
	}
	return nil
}

type memoryStaged struct {
	batch  *memoryBatch
	number int
	body   []byte
}

// Put implements cache.Staged.
func (t *memoryStaged) Put(ctx context.Context, name string, how cache.PutMode) error {
	t.batch.mu.Lock()
	closed, synced := t.batch.closed, t.number <= t.batch.synced
	t.batch.mu.Unlock()
	if !synced {
		return errors.New("put " + name + ": its bytes are not synced")
	}
	if closed {
		return errors.New("put " + name + ": its batch is closed")
	}
	return t.batch.spool.Store.Put(ctx, name, bytes.NewReader(t.body), int64(len(t.body)), how)
}
