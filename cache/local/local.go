// Package local keeps copies of blobs of a far store in a folder of this machine, so that what was stored or restored
// here is restored again without the network. It owns that folder; other processes may use it through this package
// at the same time, also for other stores.
//
// What it promises:
//
//  1. A copy is checked before a byte of it is passed on; a damaged one is removed, and the store is read. What does not
//     have the digest that its name ends in is not kept.
//  2. The files never take more of the disk than the quota, counted in whole blocks, whoever writes them: room is taken
//     under a lock before the first byte is written, from the copies that were used least recently.
//  3. Nothing depends on it: when the folder cannot be read or written, the store answers alone. A copy is never
//     evidence that the store has the object; Stat and List ask the store.
//
// It keeps what lies in a folder "blobs" of any tenant and is no larger than the quota, and passes all else through.
// Copies are not synced: one that a power cut has damaged is found out. Files are 0600 and folders 0700.
//
// A Store may be used from any goroutine. Start reading at Get; folder.go has the files.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"

	"lector/cache"
)

// Options says where copies lie and how much of the disk they may take.
type Options struct {
	Folder string
	Quota  int64       // most bytes of the files, in whole blocks
	Store  cache.Store // that is far
}

// Store is a cache.Store with copies near.
type Store struct {
	far    cache.Store
	folder *folder

	hits, misses, damaged, kept, failed atomic.Int64
}

var _ cache.Store = (*Store)(nil)

// Open uses the folder, making it where it is not there.
func Open(opt Options) (*Store, error) {
	if opt.Folder == "" || opt.Store == nil {
		return nil, errors.New("open local copies: no folder or no store named")
	}
	f, err := openFolder(opt.Folder, opt.Quota)
	if err != nil {
		return nil, fmt.Errorf("open local copies in %s: %w", opt.Folder, err)
	}
	return &Store{far: opt.Store, folder: f}, nil
}

// Stats counts since Open.
type Stats struct {
	Hits    int64 // blobs that were read here
	Misses  int64 // blobs that the store was asked for
	Damaged int64 // copies that were found damaged and removed
	Kept    int64 // copies that were made
	Failed  int64 // copies that could not be made or used
}

// Stats may be called at any time.
func (s *Store) Stats() Stats {
	return Stats{s.hits.Load(), s.misses.Load(), s.damaged.Load(), s.kept.Load(), s.failed.Load()}
}

// keeps says whether objects of that name are copied.
func keeps(name string) bool {
	return cache.CheckName(name) == nil && strings.Contains("/"+name, "/blobs/")
}

// Get implements cache.Store.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if !keeps(name) {
		return s.far.Get(ctx, name, off, n)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := s.folder.open(ctx, name)
	switch {
	case err == nil:
		s.hits.Add(1)
		return c.part(name, off, n)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errDamaged):
		s.damaged.Add(1)
	case !errors.Is(err, errAbsent):
		s.failed.Add(1)
	}
	s.misses.Add(1)
	if off != 0 || n >= 0 {
		return s.far.Get(ctx, name, off, n)
	}
	return s.fetch(ctx, name)
}

// fetch reads the object from the store, and keeps a copy when it is read to its end.
func (s *Store) fetch(ctx context.Context, name string) (io.ReadCloser, error) {
	o, err := s.far.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	r, err := s.far.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	w, err := s.folder.create(name, o.Size)
	if err != nil {
		s.note(err)
		return r, nil
	}
	return &filling{ReadCloser: r, store: s, copy: w}, nil
}

// note counts what became of a copy.
func (s *Store) note(err error) {
	switch {
	case err == nil:
		s.kept.Add(1)
	case !errors.Is(err, errRoom):
		s.failed.Add(1)
	}
}

// filling writes what is read into a copy beside.
type filling struct {
	io.ReadCloser
	store *Store
	copy  *writer // nil once it is kept or given up
}

// Read implements io.Reader.
func (f *filling) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if f.copy == nil {
		return n, err
	}
	if _, werr := f.copy.Write(p[:n]); werr != nil {
		f.end(werr)
	}
	switch {
	case errors.Is(err, io.EOF):
		f.end(nil)
	case err != nil:
		f.end(err)
	}
	return n, err
}

// end keeps the copy, or gives it up because of an error.
func (f *filling) end(err error) {
	if f.copy == nil {
		return
	}
	if err == nil {
		err = f.copy.keep()
	} else {
		f.copy.drop()
	}
	f.copy = nil
	f.store.note(err)
}

// Close implements io.Closer. What was not read to its end is not kept.
func (f *filling) Close() error {
	if f.copy != nil {
		f.copy.drop()
		f.copy = nil
	}
	return f.ReadCloser.Close()
}

// Put implements cache.Store. What the store has taken is copied.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	if !keeps(name) {
		return s.far.Put(ctx, name, body, size, how)
	}
	if how == cache.Replace {
		s.folder.remove(name) // whatever comes of the put
	}
	if err := s.far.Put(ctx, name, body, size, how); err != nil {
		return err
	}
	w, err := s.folder.create(name, size)
	if err == nil {
		if err = cache.CopyExactly(ctx, w, body, size); err == nil {
			err = w.keep()
		} else {
			w.drop()
		}
	}
	s.note(err)
	return nil
}

// Probe says whether the far store does what a writer needs, where it can say so.
func (s *Store) Probe(ctx context.Context) error {
	if p, ok := s.far.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return nil
}

// Stat implements cache.Store.
func (s *Store) Stat(ctx context.Context, name string) (cache.Object, error) {
	return s.far.Stat(ctx, name)
}

// List implements cache.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return s.far.List(ctx, prefix)
}

// Delete implements cache.Store. The copy goes, too.
func (s *Store) Delete(ctx context.Context, name string) error {
	if keeps(name) && ctx.Err() == nil {
		s.folder.remove(name)
	}
	return s.far.Delete(ctx, name)
}
