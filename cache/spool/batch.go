package spool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"lector/cache"
	"lector/cache/disk"
)

// batch is the files of one chunk.
type batch struct {
	spool *Spool
	need  int64

	mu     sync.Mutex
	sizes  []int64 // not added yet
	files  []string
	open   []disk.File // that are not synced
	lost   bool        // a sync failed
	closed bool
}

// Add implements cache.Batch.
func (b *batch) Add(ctx context.Context, body io.ReadSeeker, size int64) (cache.Staged, error) {
	path, err := b.begin(size)
	if err != nil {
		return nil, err
	}
	t := &staged{batch: b, spool: b.spool, path: path, size: size, start: newCounter()}
	f, err := t.write(ctx, body)
	if err != nil {
		return nil, fmt.Errorf("spool %d bytes: %w", size, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, f)
	return t, nil
}

// Sync implements cache.Batch.
func (b *batch) Sync(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	files := b.open
	b.open = nil
	err := disk.SyncAll(files)
	if err == nil {
		err = b.spool.syncFolder()
	}
	if err != nil {
		b.lost = true
		return fmt.Errorf("sync what is spooled: %w", err)
	}
	return nil
}

// syncFolder makes the names of the files durable.
func (s *Spool) syncFolder() error {
	folder, err := s.root.OpenFile(".", os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// begin takes a size of the batch and names its file, so that Close removes it in any case.
func (b *batch) begin(size int64) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.sizes, size)
	if b.closed || i < 0 {
		return "", fmt.Errorf("spool %d bytes: the batch has no room for them", size)
	}
	b.sizes = slices.Delete(b.sizes, i, i+1)
	path := rand.Text()
	b.files = append(b.files, path)
	return path, nil
}

// Close implements cache.Batch. No Add may be on its way.
func (b *batch) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	var errs []error
	for _, f := range b.open {
		f.Close() // only given up
	}
	for _, path := range b.files {
		if err := b.spool.root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove spooled file: %w", err))
		}
	}
	if len(errs) == 0 {
		b.spool.release(b.need) // what could not be removed still takes its room
	}
	return errors.Join(errs...)
}

// staged is one file.
type staged struct {
	batch *batch
	spool *Spool
	path  string
	size  int64
	start counter // of a private file

	digest *cache.Digest // nil: not known
}

// write makes a file of exactly the size, which is open then.
func (t *staged) write(ctx context.Context, body io.ReadSeeker) (disk.File, error) {
	f, err := t.spool.root.OpenFile(t.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	early := disk.NewEarly(f)
	var w io.Writer = early
	if p := t.spool.private; p != nil {
		w = &hiding{w: w, stream: p.at(t.start, 0)}
	}
	if err = cache.CopyExactly(ctx, w, body, t.size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	early.Start()
	return f, nil
}

// Put implements cache.Staged.
func (t *staged) Put(ctx context.Context, name string, how cache.PutMode) (err error) {
	t.batch.mu.Lock()
	synced := len(t.batch.open) == 0 && !t.batch.lost
	t.batch.mu.Unlock()
	if !synced {
		return fmt.Errorf("put %s: its bytes are not synced", name)
	}
	f, err := t.spool.root.OpenFile(t.path, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var body io.ReadSeeker = f
	if p := t.spool.private; p != nil {
		body = &showing{f: f, p: p, start: t.start, stream: p.at(t.start, 0)}
	}
	if t.digest != nil {
		body = summed{body, *t.digest}
	}
	return t.spool.opt.Store.Put(ctx, name, body, t.size, how)
}

// Summed takes the digest of the bytes as they were added: a store that checks what it is sent so checks the file, too.
func (t *staged) Summed(d cache.Digest) { t.digest = &d }

// summed is a body whose digest is known.
type summed struct {
	io.ReadSeeker
	digest cache.Digest
}

var _ cache.Summed = summed{}

// SHA256 implements cache.Summed.
func (s summed) SHA256() (cache.Digest, bool) { return s.digest, true }
