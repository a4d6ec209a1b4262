package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"

	"lector/cache"
	"lector/cache/disk"
)

var (
	_ cache.Stager = (*Store)(nil)
	_ cache.Joint  = (*batch)(nil)
)

// Stage implements cache.Stager: staged bytes lie in files beside the log, synced, and a name is a link to them; those of a
// small object wait in memory. There is always room: they take no more than the object will.
func (s *Store) Stage(ctx context.Context, sizes []int64) (cache.Batch, error) {
	b := &batch{store: s}
	if !s.options.Unsynced {
		s.journal.mu.Lock()
		defer s.journal.mu.Unlock()
		if err := s.begin(); err != nil {
			return nil, fmt.Errorf("begin log: %w", explain(err))
		}
		if b.log = s.journal.id; b.log != "" {
			s.journal.users++
		}
	}
	for _, n := range sizes {
		b.left += n
	}
	return b, ctx.Err()
}

// batch is the temporary files of one chunk.
type batch struct {
	store *Store
	log   string // whose files they are; "": temporary ones

	mu     sync.Mutex
	left   int64
	temps  []*temp
	closed bool
}

// temp is one of them, or a small object in memory.
type temp struct {
	name   string // of the file; "": none
	bytes  []byte // where there is no file
	size   int64
	file   disk.File // nil when it is synced
	synced bool
	kept   bool // the log keeps the file
}

// Add implements cache.Batch.
func (b *batch) Add(ctx context.Context, body io.ReadSeeker, size int64) (cache.Staged, error) {
	if err := b.take(size); err != nil {
		return nil, err
	}
	t, err := b.keep(ctx, body, size)
	if err != nil {
		return nil, fmt.Errorf("stage %d bytes: %w", size, explain(err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.temps = append(b.temps, t)
	if b.closed {
		return nil, errors.Join(errClosed, b.drop())
	}
	return staged{b, t}, nil
}

// keep holds a small object and writes a large one.
func (b *batch) keep(ctx context.Context, body io.ReadSeeker, size int64) (*temp, error) {
	if size <= b.store.inline {
		var buf bytes.Buffer
		err := cache.CopyExactly(ctx, &buf, body, size)
		return &temp{bytes: append([]byte{}, buf.Bytes()...), size: size}, err
	}
	name := path.Join(tempFolder, rand.Text())
	if b.log != "" {
		name = path.Join(logFolder, b.log+"."+rand.Text())
	}
	f, err := b.store.beginTemp(ctx, name, body, size)
	return &temp{name: name, file: f, size: size}, err
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
	if err := ctx.Err(); err != nil {
		return err
	}
	written, err := b.sync()
	if written && err == nil && b.log != "" {
		b.store.journal.knows(b.log)
	}
	return err
}

// sync is Sync, and says whether there were files.
func (b *batch) sync() (written bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var files []disk.File
	for _, t := range b.temps {
		if t.file != nil {
			files = append(files, t.file)
		}
	}
	if len(files) > 0 && b.log != "" { // their names, too: the log will count on them
		folder, err := b.store.root.OpenFile(logFolder, os.O_RDONLY, 0)
		if err != nil {
			return false, fmt.Errorf("sync what is staged: %w", explain(err))
		}
		files = append(files, folder)
	}
	if err := b.store.finish(files...); err != nil {
		return false, fmt.Errorf("sync what is staged: %w", explain(err))
	}
	for _, t := range b.temps {
		t.file, t.synced = nil, true
	}
	return len(files) > 0, nil
}

// syncJoint is sync beside a record of the log, whose lock is held.
func (b *batch) syncJoint() error {
	written, err := b.sync()
	if written && err == nil {
		b.store.journal.known = true
	}
	return err
}

// fewBytes says whether what is to be synced takes so little that others who put meanwhile may wait for it.
func (b *batch) fewBytes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int64(0)
	for _, t := range b.temps {
		if !t.synced {
			n += t.size
		}
	}
	return n <= jointBytes
}

// Close implements cache.Batch.
func (b *batch) Close() error {
	b.mu.Lock()
	again := b.closed
	b.closed, b.left = true, 0
	err := b.drop()
	b.mu.Unlock() // PutAll takes the lock of the log first
	if b.log != "" && !again {
		err = errors.Join(err, b.store.leave())
	}
	return err
}

// drop removes the files that the log does not keep.
func (b *batch) drop() error {
	var errs []error
	for _, t := range b.temps {
		if t.file != nil {
			t.file.Close() // only given up; a sync that failed has closed it
		}
		if t.name != "" && !t.kept {
			errs = append(errs, b.store.forget(t.name))
		}
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
	if err := t.ready(name); err != nil {
		return err
	}
	store := t.batch.store
	if b := t.temp.bytes; b != nil {
		return store.Put(ctx, name, bytes.NewReader(b), int64(len(b)), how)
	}
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

// entry describes the object for a record. It says whether that is enough where the record is durable and the file is not.
func (t staged) entry(n cache.Naming) (e entry, joint bool) {
	if e = (entry{Name: n.Name, Bytes: t.temp.bytes}); t.temp.bytes != nil {
		return e, true
	}
	e.File = path.Base(t.temp.name)
	t.batch.mu.Lock()
	defer t.batch.mu.Unlock()
	if joint = t.temp.synced; !joint && n.Digest != (cache.Digest{}) {
		e.Sum, joint = n.Digest.String(), true
	}
	return e, joint
}

// ready refuses an object that was not synced.
func (t staged) ready(name string) error {
	t.batch.mu.Lock()
	defer t.batch.mu.Unlock()
	if !t.temp.synced {
		return fmt.Errorf("put %s: its bytes are not synced", name)
	}
	return nil
}
