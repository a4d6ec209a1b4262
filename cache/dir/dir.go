// Package dir keeps objects as files of one folder. It owns that folder: nothing else writes there, but other
// processes may use it through this package at the same time.
//
// What it promises:
//
//  1. An object is there whole or not at all, and Put returns when it would survive a power cut: the bytes are
//     synced before the name appears, and every folder on the way to the name is synced after.
//  2. Of several processes that put one name if absent, exactly one succeeds. The name is made with link(2),
//     which refuses a name that is taken in the same step in which it makes it; rename(2) would replace it, and
//     asking first would leave a gap.
//  3. No name and no symbolic link leads out of the folder.
//
// Objects that are put together (cache.Joint) would wait for the disk several times: for the bytes, for the names of those that
// others name, for theirs. A log has it wait once where there are few bytes, and else for the bytes and once more. Each open
// store has one, a file of the folder "log~" that it holds a lock on, beside the staged files. One record says of all objects
// which name each gets, in order, and holds the bytes of the small ones; when that is on the disk, the names are made and
// nothing waits. Half a second later the store settles: bytes and names are synced, the log says so, and only then do the
// staged files go. What makes that safe:
//
//   - Nobody sees a name before the record and the bytes that it names are durable. Whenever the power goes, the names follow
//     from the log alone; a record that is torn has a digest that is none, and its put has not returned.
//   - Bytes that are synced beside the record have their digest in it. Where a file is not there or not whole, its put has not
//     returned either, and neither that object nor one behind it in the record gets a name.
//   - Open carries out the logs whose lock is free, whose stores are dead, before it does anything else, and Delete does. Both
//     give each name again in the order of the record, replace a small object that a power cut tore (its beginning, and nothing
//     or zeros behind it) and nothing else, sync all, and remove the log last. So it may end at any point and begin again.
//   - A name that is to be deleted is settled first, so that no log gives it again. (Of another store that lives and put it
//     within that half second it may come back whole, if that one dies then: a deletion is not synced.)
//   - A put that meets a taken name half-way settles, so that the rest of its record gets no name at another time.
//
// A lector that knows no logs sees no object in "log~" and removes nothing there. On a folder where the power went it may miss
// what was put last, and find a small object torn (an error, since all are checked), until one that knows logs has opened it. A
// log of a newer version is refused. Where files cannot be locked there is no log, and puts wait as often as they must.
//
// A store that is opened with Options.Unsynced leaves the disk out of promise 1: nothing waits for it. What it has stored
// survives the death of every process, and a power cut or a crash of the system may take what was stored last, names before
// bytes or bytes before names. It is for scratch, and for what can be read again.
//
// An object whose name ends in a digest lies in a folder of the digest's first two letters, so that no folder
// grows too large: a/blobs/3fa1… is the file a/blobs/3f/3fa1…. Half-written files lie in the folder "tmp~", which
// is the name of no object, as is "log~"; Open removes those that are older than an hour. Files are 0600 and folders 0700.
//
// It refuses a file system without hard links. On one that does not tell capitals apart, names that differ in
// capitals only are one object. A name that is also the beginning of another up to a slash cannot be stored.
//
// A Store may be used from any goroutine. Start reading at Put; power_test.go takes the power away at every effect.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"lector/cache"
	"lector/cache/disk"
)

// tempFolder holds files that are being written. No object has '~' in its name.
const tempFolder = "tmp~"

// tempAge is how old a half-written file is before it is nobody's: no put takes that long.
const tempAge = time.Hour

// Store is a cache.Store of files.
type Store struct {
	root    disk.Root
	options Options
	settled settled
	journal journal

	inline   int64         // an object of at most so many bytes lies in the log itself
	settling time.Duration // how long the log alone may keep names
}

// Options are the settings of a Store. The zero value is the default.
type Options struct {
	Unsynced bool // do not wait for the disk: a power cut may take what was stored last
}

var _ cache.Store = (*Store)(nil)

// Open is OpenWith without options.
func Open(folder string) (*Store, error) { return OpenWith(folder, Options{}) }

// OpenWith uses the folder, making it where it is not there, and removes what writers that died have left.
func OpenWith(folder string, o Options) (*Store, error) {
	if folder == "" {
		return nil, errors.New("open store: no folder named")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("open store %s: %w", folder, explain(err))
	}
	root, err := disk.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", folder, explain(err))
	}
	s, err := OpenRoot(root, o)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", folder, explain(err))
	}
	return s, nil
}

// OpenRoot is OpenWith of a folder that is open already. It closes the root when it fails; Close does later.
func OpenRoot(root disk.Root, o Options) (*Store, error) {
	s := &Store{root: root, options: o, inline: inlineBytes, settling: logTime}
	if err := s.sweep(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// Close releases the folder. Calls in progress fail.
func (s *Store) Close() error {
	return errors.Join(s.closeLog(), s.settled.forget(), s.root.Close())
}

// sweep makes the folder of temporary files, and removes the old ones.
func (s *Store) sweep() error {
	for _, folder := range []string{tempFolder, logFolder} {
		if err := s.root.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	if err := s.recover(); err != nil {
		return err
	}
	for _, folder := range []string{tempFolder, logFolder} {
		if err := s.syncFolders(folder + "/any"); err != nil {
			return err // a file system that cannot sync folders is refused now, not at the first put
		}
	}
	entries, err := s.readFolder(tempFolder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) < tempAge {
			continue // another process has finished it, or is at it
		}
		if err != nil {
			return err
		}
		if err := s.root.Remove(path.Join(tempFolder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// place is the file of an object.
func place(name string) (string, error) {
	if err := cache.CheckName(name); err != nil {
		return "", err
	}
	folder, last := path.Split(name)
	if isDigest(last) {
		return folder + last[:2] + "/" + last, nil
	}
	return name, nil
}

func isDigest(element string) bool {
	_, err := cache.ParseDigest(element)
	return err == nil
}

// Get implements cache.Store.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	file, err := place(name)
	if err != nil {
		return nil, err
	}
	info, err := s.lookup(ctx, name, file)
	if err != nil {
		return nil, err
	}
	if off < 0 || off > info.Size() || n > info.Size()-off {
		return nil, fmt.Errorf("get %s: %d bytes from %d are beyond its end at %d", name, n, off, info.Size())
	}
	f, err := s.root.OpenFile(file, os.O_RDONLY, 0)
	if err != nil {
		return nil, fail("get", name, err)
	}
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		f.Close()
		return nil, fail("get", name, err)
	}
	if n < 0 {
		return f, nil
	}
	return &part{io.LimitReader(f, n), f}, nil
}

// part is a range of a file.
type part struct {
	io.Reader
	io.Closer
}

// Stat implements cache.Store.
func (s *Store) Stat(ctx context.Context, name string) (cache.Object, error) {
	file, err := place(name)
	if err != nil {
		return cache.Object{}, err
	}
	info, err := s.lookup(ctx, name, file)
	if err != nil {
		return cache.Object{}, err
	}
	return cache.Object{Name: name, Size: info.Size(), Time: info.ModTime()}, nil
}

// lookup finds the file of an object; anything but a regular file is none.
func (s *Store) lookup(ctx context.Context, name, file string) (fs.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := s.root.Lstat(file)
	if err != nil {
		return nil, fail("look for", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("look for %s: its file %s is a %s, not a regular file", name, file, describe(info.Mode()))
	}
	return info, nil
}

func describe(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	}
	return "special file"
}

// Delete implements cache.Store. Folders that become empty go, too: a job's rolling state leaves nothing.
func (s *Store) Delete(ctx context.Context, name string) error {
	file, err := place(name)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.unlog(file); err != nil {
		return fail("delete", name, err)
	}
	if err := s.root.Remove(file); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		return fail("delete", name, err)
	}
	for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
		if s.root.Remove(folder) != nil {
			break // not empty, which is the usual case
		}
	}
	return nil
}

// fail names the call and the object, and says what a user can do where there is something.
func fail(verb, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%s %s: %w", verb, name, cache.ErrNotFound)
	}
	return fmt.Errorf("%s %s: %w", verb, name, explain(err))
}

// explain adds what to do about the failures that a user can do something about.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: free some space, or use a store on another disk", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the user who runs lector needs to read and write that folder", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: use a store on a disk that can be written", err)
	}
	return err
}

// readFolder lists a folder, in no order.
func (s *Store) readFolder(folder string) ([]fs.DirEntry, error) {
	f, err := s.root.OpenFile(folder, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}
