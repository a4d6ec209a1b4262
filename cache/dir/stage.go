package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"

	"lector/cache"
	"lector/cache/disk"
)

var _ cache.Stager = (*Store)(nil)

// Stage implements cache.Stager: staged bytes lie in the folder of temporary files, synced, and a name is a link to
// them. There is always room: they take no more than the object will.
func (s *Store) Stage(ctx context.Context, sizes []int64) (cache.Batch, error) {
	b := &batch{store: s}
	for _, n := range sizes {
		b.left += n
	}
	return b, ctx.Err()
}

// batch is the temporary files of one chunk.
type batch struct {
	store *Store

	mu     sync.Mutex
	left   int64
	temps  []*temp
	closed bool
}

// temp is one of them.
type temp struct {
	name string
	file disk.File // nil when it is synced
}

// Add implements cache.Batch.
func (b *batch) Add(ctx context.Context, body io.ReadSeeker, size int64) (cache.Staged, error) {
	if err := b.take(size); err != nil {
		return nil, err
	}
	name, f, err := b.store.beginTemp(ctx, body, size)
	if err != nil {
		return nil, fmt.Errorf("stage %d bytes: %w", size, explain(err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(errClosed, f.Close(), b.store.forget(name))
	}
	t := &temp{name, f}
	b.temps = append(b.temps, t)
	return staged{b, t}, nil
}

var errClosed = errors.New("the batch is closed")

func (b *batch) take(size int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || size > b.left {
		return fmt.Errorf("stage %d bytes: the batch has room for %d", size, b.left)
	}
	b.left -= size
	return nil
}

// Sync implements cache.Batch.
func (b *batch) Sync(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	var files []disk.File
	for _, t := range b.temps {
		if t.file != nil {
			files = append(files, t.file)
		}
	}
	if err := b.store.finish(files...); err != nil {
		return fmt.Errorf("sync what is staged: %w", explain(err))
	}
	for _, t := range b.temps {
		t.file = nil
	}
	return nil
}

// Close implements cache.Batch.
func (b *batch) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.left = true, 0
	var errs []error
	for _, t := range b.temps {
		if t.file != nil {
			t.file.Close() // only given up; a sync that failed has closed it
		}
		errs = append(errs, b.store.forget(t.name))
	}
	b.temps = nil
	return errors.Join(errs...)
}

// forget removes a temporary file, which may be gone.
func (s *Store) forget(temp string) error {
	if err := s.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove temporary file %s: %w", temp, explain(err))
	}
	return nil
}

// staged is one temporary file.
type staged struct {
	batch *batch
	temp  *temp
}

// Put implements cache.Staged. A Replace renames another link to the file, so that it can be repeated.
func (t staged) Put(ctx context.Context, name string, how cache.PutMode) error {
	if err := cache.CheckName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.batch.mu.Lock()
	synced := t.temp.file == nil
	t.batch.mu.Unlock()
	if !synced {
		return fmt.Errorf("put %s: its bytes are not synced", name)
	}
	store := t.batch.store
	if how == cache.IfAbsent {
		return store.name(ctx, t.temp.name, name, how)
	}
	again := path.Join(tempFolder, rand.Text())
	if err := store.root.Link(t.temp.name, again); err != nil {
		return fmt.Errorf("put %s: %w", name, explain(err))
	}
	err := store.name(ctx, again, name, how)
	return errors.Join(err, store.forget(again)) // it stays where the name was a link to the same file already
}
