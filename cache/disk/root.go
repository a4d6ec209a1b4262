package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sync/errgroup"
)

// Root is a folder, and what those who keep files do in it: os.Root's calls, as an interface, so that a test may take the
// power away between any two of them. Names are relative and lead out of the folder by no way.
type Root interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Lstat(name string) (fs.FileInfo, error)
	Link(from, to string) error
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(name string, perm fs.FileMode) error
	Close() error
}

// File is an open file or folder of a Root. Sync of a file makes its bytes durable, that of a folder the names in it.
type File interface {
	io.Reader
	io.Writer
	io.Seeker
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	ReadDir(n int) ([]fs.DirEntry, error)
	Sync() error
}

// OpenRoot opens a folder that is there.
func OpenRoot(folder string) (Root, error) {
	r, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	return quicker(root{r}), nil
}

type root struct{ *os.Root }

func (r root) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // and no file that is not nil
	}
	return f, nil
}

// SyncAll makes the bytes of open files durable, several at once: that takes little longer than one of them. It closes all.
func SyncAll(files []File) error {
	var g errgroup.Group
	for _, f := range files {
		g.Go(func() error { return errors.Join(f.Sync(), f.Close()) })
	}
	return g.Wait()
}
