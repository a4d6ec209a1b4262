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
	temps  []string
	closed bool
}

// Add implements cache.Batch.
func (b *batch) Add(ctx context.Context, body io.ReadSeeker, size int64) (cache.Staged, error) {
	if err := b.take(size); err != nil {
		return nil, err
	}
	temp, err := b.store.writeTemp(ctx, body, size)
	if err != nil {
		return nil, fmt.Errorf("stage %d bytes: %w", size, explain(err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(errClosed, b.store.forget(temp))
	}
	b.temps = append(b.temps, temp)
	return staged{b.store, temp}, nil
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

// Close implements cache.Batch.
func (b *batch) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.left = true, 0
	var errs []error
	for _, temp := range b.temps {
		errs = append(errs, b.store.forget(temp))
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
	store *Store
	temp  string
}

// Put implements cache.Staged. A Replace renames another link to the file, so that it can be repeated.
func (t staged) Put(ctx context.Context, name string, how cache.PutMode) error {
	file, err := place(name)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if how == cache.IfAbsent {
		if taken, err := t.store.taken(ctx, name, file); taken || err != nil {
			return err
		}
		return t.store.name(ctx, t.temp, name, how)
	}
	again := path.Join(tempFolder, rand.Text())
	if err := t.store.root.Link(t.temp, again); err != nil {
		return fmt.Errorf("put %s: %w", name, explain(err))
	}
	err = t.store.name(ctx, again, name, how)
	return errors.Join(err, t.store.forget(again)) // it stays where the name was a link to the same file already
}
