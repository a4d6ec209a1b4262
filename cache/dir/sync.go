package dir

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"lector/cache/disk"
)

// syncFolders makes the name of a file durable: its folder, and the names of all folders above, up to one whose own name
// is known to be durable. A sync of a folder that has not changed costs a flush of the disk all the same; several at once
// cost little more than one.
func (s *Store) syncFolders(file string) (err error) {
	if s.options.Unsynced {
		return nil
	}
	folders, err := s.unsettled(file)
	if err == nil {
		var g errgroup.Group
		for _, f := range folders {
			g.Go(func() error {
				if err := f.Sync(); err != nil {
					return fmt.Errorf("sync folder %s: %w", f.Name(), err)
				}
				return nil
			})
		}
		err = g.Wait()
	}
	if err == nil {
		return s.settled.add(folders)
	}
	for _, f := range folders {
		f.Close() // only read
	}
	return err
}

// unsettled opens the folders above a file, from the bottom up to the first whose own name is durable.
func (s *Store) unsettled(file string) (folders []disk.File, err error) {
	for folder := path.Dir(file); ; folder = path.Dir(folder) {
		f, err := s.root.OpenFile(folder, os.O_RDONLY, 0)
		if err != nil {
			return folders, err
		}
		folders = append(folders, f)
		if folder == "." || s.settled.has(f) {
			return folders, nil
		}
	}
}

// maxSettled bounds the open folders.
const maxSettled = 64

// settled are the folders whose own names, and those of all above them, are durable. They are held open: as long as one
// is, no folder that is made in its place can be taken for it. The zero value is ready.
type settled struct {
	mu      sync.Mutex
	folders []openFolder
}

type openFolder struct {
	file disk.File
	info os.FileInfo
}

// has says whether an open folder is one of them.
func (s *settled) has(f disk.File) bool {
	info, err := f.Stat()
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && s.holds(info)
}

func (s *settled) holds(info os.FileInfo) bool {
	return slices.ContainsFunc(s.folders, func(o openFolder) bool { return os.SameFile(o.info, info) })
}

// add takes open folders over. When there are too many, all are forgotten: what is in use comes again.
func (s *settled) add(fresh []disk.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if len(s.folders)+len(fresh) > maxSettled {
		errs = append(errs, s.closeAll())
	}
	for _, f := range fresh {
		info, err := f.Stat()
		if err != nil || s.holds(info) {
			errs = append(errs, f.Close())
			continue
		}
		s.folders = append(s.folders, openFolder{f, info})
	}
	return errors.Join(errs...)
}

// forget lets go of all.
func (s *settled) forget() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeAll()
}

func (s *settled) closeAll() error {
	var errs []error
	for _, o := range s.folders {
		errs = append(errs, o.file.Close())
	}
	s.folders = nil
	return errors.Join(errs...)
}
