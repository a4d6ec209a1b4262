package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"syscall"

	"lector/cache"
	"lector/cache/disk"
)

// publishTries is how often a folder is made again that a Delete elsewhere has just removed as empty: on a machine with more to do
// than processors one may lose to a busy deleter several times in a row.
const publishTries = 100

// Put implements cache.Store: it writes and syncs a temporary file, gives it its name, and syncs the folders.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	file, err := place(name)
	if err != nil {
		return err
	}
	if how == cache.IfAbsent {
		if taken, err := s.taken(ctx, name, file); taken || err != nil {
			return err
		}
	}
	temp := path.Join(tempFolder, rand.Text())
	f, err := s.beginTemp(ctx, temp, body, size)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, explain(err))
	}
	defer s.root.Remove(temp) // the object stands or not whether this succeeds; Open sweeps what is left
	if err := s.finish(f); err != nil {
		return fmt.Errorf("put %s: %w", name, explain(err))
	}
	return s.name(ctx, temp, name, how)
}

// name makes a synced temporary file the object of that name. The temporary name stays, but for a Replace that
// succeeded.
func (s *Store) name(ctx context.Context, temp, name string, how cache.PutMode) error {
	file, err := place(name)
	if err != nil {
		return err
	}
	if how == cache.IfAbsent {
		err = s.publish(temp, file, s.root.Link)
	} else {
		err = s.publish(temp, file, s.root.Rename)
	}
	switch {
	case err == nil:
		return nil
	case how == cache.IfAbsent && errors.Is(err, fs.ErrExist):
		if taken, terr := s.taken(ctx, name, file); taken || terr != nil {
			return terr
		}
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP):
		return fmt.Errorf("put %s: %w: the store needs a file system with hard links", name, err)
	}
	return fmt.Errorf("put %s: %w", name, explain(err))
}

// taken answers for a name that is there already: ErrExists, after a sync of its folders, since whoever made the
// name may not have come to that.
func (s *Store) taken(ctx context.Context, name, file string) (bool, error) {
	_, err := s.lookup(ctx, name, file)
	if errors.Is(err, cache.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := s.syncFolders(file); err != nil {
		return false, fail("put", name, err)
	}
	return true, fmt.Errorf("put %s: %w", name, cache.ErrExists)
}

// beginTemp writes exactly size bytes of body to a temporary file, which is open then and may be synced, and leaves none
// behind on failure.
func (s *Store) beginTemp(ctx context.Context, temp string, body io.ReadSeeker, size int64) (f disk.File, err error) {
	if f, err = s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if s.options.Unsynced {
		err = cache.CopyExactly(ctx, f, body, size)
	} else {
		early := disk.NewEarly(f)
		err = cache.CopyExactly(ctx, early, body, size)
		early.Start()
	}
	if err != nil {
		f.Close()
		s.root.Remove(temp) // the write's own failure is what counts; Open sweeps what is left
		return nil, err
	}
	return f, nil
}

// finish syncs files that are written, unless the store does not, and closes them.
func (s *Store) finish(files ...disk.File) error {
	if !s.options.Unsynced {
		return disk.SyncAll(files)
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// publish gives the temporary file its name and syncs the folders. When that sync fails the name stays: another writer may
// have synced it and rely on it.
func (s *Store) publish(temp, file string, name func(from, to string) error) error {
	if err := s.link(temp, file, name); err != nil {
		return err
	}
	return s.syncFolders(file)
}

// link gives the temporary file its name, in a folder that it makes where it is not there.
func (s *Store) link(temp, file string, name func(from, to string) error) error {
	err := name(temp, file)
	for try := 0; try < publishTries && errors.Is(err, fs.ErrNotExist); try++ {
		err = s.root.MkdirAll(path.Dir(file), 0o700)
		if errors.Is(err, fs.ErrExist) { // removed between two looks at it
			err = fs.ErrNotExist
		}
		if err == nil {
			err = name(temp, file)
		}
		if err != nil {
			runtime.Gosched()
		}
	}
	return err
}
