// Package spool keeps chunks in a folder of this machine while a slower store takes them. It owns that folder: one
// process at a time, by a lock on it.
//
// What it promises:
//
//  1. Bytes are synced, and so is the folder, before Sync returns.
//  2. The files never take more of the disk than the quota, counted in whole blocks. A batch's room is taken for all
//     of its objects before the first byte is written, in the order of asking, so that batches never wait for each
//     other with half of their bytes written.
//  3. What a process that died has left is removed when the next one opens the folder: the store knows nothing of it,
//     and the chunk is computed again. No more than that chunk is lost, since a worker stages one only after the one
//     before it is stored.
//
// It refuses a folder that another process owns (ErrOwned), and a batch that is larger than the quota (cache.ErrRoom).
// Files are 0600 and folders 0700.
//
// A Spool may be used from any goroutine. Start reading at Stage.
package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"lector/cache"
	"lector/cache/disk"
)

// ErrOwned says that another process has the folder.
var ErrOwned = errors.New("another process owns the spool")

// Options says where a spool lies and how large it may become.
type Options struct {
	Folder string
	Quota  int64       // most bytes of the files, in whole blocks
	Store  cache.Store // what the chunks are on their way to
	Root   disk.Root   // the folder, where it is open already; nil: Open opens it

	// Private hides what the files hold under a key that ends with this process: for a store that is encrypted.
	Private bool
}

// Spool is a cache.Stager of files.
type Spool struct {
	opt   Options
	lock  *os.File
	root  disk.Root
	room  *semaphore.Weighted
	block int64

	private *private // nil: files are as they came

	used    atomic.Int64
	waiting atomic.Int64
	waited  atomic.Int64 // nanoseconds
}

var _ cache.Stager = (*Spool)(nil)

// lockFile is the name of the file that the owner holds a lock on.
const lockFile = "lock"

// Open takes the folder, making it where it is not there, and removes what an earlier owner has left.
func Open(opt Options) (*Spool, error) {
	if opt.Folder == "" || opt.Store == nil {
		return nil, errors.New("open spool: no folder or no store named")
	}
	s := &Spool{opt: opt}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool %s: %w", opt.Folder, err), s.Close())
	}
	return s, nil
}

func (s *Spool) open() (err error) {
	if err := os.MkdirAll(s.opt.Folder, 0o700); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(filepath.Join(s.opt.Folder, lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := disk.Lock(s.lock, false); errors.Is(err, disk.ErrLocked) {
		return ErrOwned
	} else if err != nil {
		return err
	}
	if s.block, err = disk.BlockSize(s.opt.Folder); err != nil {
		return fmt.Errorf("ask for its block size: %w", err)
	}
	if s.opt.Quota < 2*s.block {
		return fmt.Errorf("a quota of %d bytes holds nothing: a file takes blocks of %d", s.opt.Quota, s.block)
	}
	if s.root = s.opt.Root; s.root == nil {
		if s.root, err = disk.OpenRoot(s.opt.Folder); err != nil {
			return err
		}
	}
	s.room = semaphore.NewWeighted(s.opt.Quota)
	if s.opt.Private {
		if s.private, err = newPrivate(); err != nil {
			return err
		}
	}
	return s.sweep()
}

// sweep removes every file but the lock.
func (s *Spool) sweep() error {
	folder, err := s.root.OpenFile(".", os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	entries, err := folder.ReadDir(-1)
	if err := errors.Join(err, folder.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockFile {
			continue
		}
		if !e.Type().IsRegular() {
			return fmt.Errorf("%s is not a file of a spool: name a folder of its own", e.Name())
		}
		if err := s.root.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close gives the folder up. Batches must be closed first.
func (s *Spool) Close() error {
	if s.lock == nil {
		return nil
	}
	var err error
	if s.root != nil {
		err = s.root.Close()
	}
	return errors.Join(err, s.lock.Close()) // which ends the lock
}

// need is the room that objects of these sizes take.
func (s *Spool) need(sizes []int64) (n int64) {
	for _, size := range sizes {
		n += disk.Room(size, s.block)
	}
	return n
}

// Stage implements cache.Stager.
func (s *Spool) Stage(ctx context.Context, sizes []int64) (cache.Batch, error) {
	need := s.need(sizes)
	if need > s.opt.Quota {
		return nil, fmt.Errorf("spool %s: a chunk takes %d bytes of disk, and its quota is %d: %w", s.opt.Folder, need, s.opt.Quota, cache.ErrRoom)
	}
	if err := s.acquire(ctx, need); err != nil {
		return nil, err
	}
	s.used.Add(need)
	return &batch{spool: s, need: need, sizes: append([]int64(nil), sizes...)}, nil
}

// acquire waits for room, and counts how long.
func (s *Spool) acquire(ctx context.Context, need int64) error {
	if s.room.TryAcquire(need) {
		return ctx.Err()
	}
	s.waiting.Add(1)
	began := time.Now()
	err := s.room.Acquire(ctx, need)
	s.waiting.Add(-1)
	s.waited.Add(int64(time.Since(began)))
	return err
}

func (s *Spool) release(need int64) {
	s.used.Add(-need)
	s.room.Release(need)
}

// Stats is what a spool holds now and how long batches have waited for room.
type Stats struct {
	Bytes   int64 // taken by open batches, in whole blocks
	Quota   int64
	Waiting int           // batches that wait for room now
	Waited  time.Duration // by all that had to
}

// Stats may be called at any time.
func (s *Spool) Stats() Stats {
	return Stats{Bytes: s.used.Load(), Quota: s.opt.Quota, Waiting: int(s.waiting.Load()), Waited: time.Duration(s.waited.Load())}
}
