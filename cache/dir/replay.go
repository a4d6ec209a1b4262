package dir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"lector/cache"
)

// unlog makes sure that no log gives an object its name again that is about to be deleted.
func (s *Store) unlog(file string) error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	if s.journal.names(file) {
		if err := s.settle(); err != nil {
			return err
		}
	}
	return s.recover()
}

// recover carries out what logs say whose stores have died, and removes them with their files.
func (s *Store) recover() error {
	entries, err := s.readFolder(logFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	logs := map[string]bool{} // that are alive
	for _, e := range entries {
		if name := e.Name(); !strings.Contains(name, ".") && name != s.journal.id {
			alive, err := s.replay(name)
			if err != nil {
				return fmt.Errorf("carry out log %s: %w", name, err)
			}
			logs[name] = alive
		}
	}
	for _, e := range entries {
		owner, _, isTemp := strings.Cut(e.Name(), ".")
		if !isTemp || logs[owner] || owner == s.journal.id {
			continue
		}
		if _, err := s.root.Lstat(path.Join(logFolder, owner)); !errors.Is(err, fs.ErrNotExist) {
			continue // it has begun meanwhile
		}
		if err := s.forget(path.Join(logFolder, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// replay carries out a log, unless its store is alive.
func (s *Store) replay(id string) (alive bool, err error) {
	name := path.Join(logFolder, id)
	f, err := s.root.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if lock(f) != nil { // it is alive, or nobody can tell
		return true, nil
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return true, err
	}
	all, err := records(b)
	if err != nil {
		return true, err
	}
	dead := &Store{root: s.root} // which is synced, whatever this one is
	dead.journal.id = id
	defer func() { err = errors.Join(err, dead.settled.forget()) }()
	for _, r := range all {
		for _, e := range r.Objects {
			gone, aerr := dead.again(e)
			if err = errors.Join(err, aerr); gone || err != nil {
				break
			}
		}
	}
	if err := errors.Join(err, dead.syncNamed()); err != nil {
		return true, err
	}
	err = s.forget(name)
	for _, temp := range dead.journal.temps {
		err = errors.Join(err, s.forget(temp))
	}
	return false, err
}

// whole says whether a file has the bytes of a digest, and makes them durable if so.
func (s *Store) whole(file, sum string) (_ bool, err error) {
	f, err := s.root.OpenFile(file, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil || hex.EncodeToString(h.Sum(nil)) != sum {
		return false, err
	}
	return true, f.Sync()
}

// again names an object that a log names, unless it is there whole. It says whether the bytes are gone: then the record is of
// a PutAll that has failed, and what follows depends on them.
func (s *Store) again(e entry) (gone bool, err error) {
	if e.Sum != "" {
		if whole, err := s.whole(path.Join(logFolder, e.File), e.Sum); err != nil || !whole {
			return true, err
		}
	}
	err = s.nameFromLog(e)
	switch {
	case errors.Is(err, fs.ErrNotExist) && e.File != "":
		return true, nil
	case !errors.Is(err, cache.ErrExists):
		return false, err
	case e.File != "":
		return false, nil // a link, to all of it
	}
	file, err := place(e.Name)
	if err != nil {
		return false, err
	}
	there, err := s.root.OpenFile(file, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	b, err := io.ReadAll(there)
	if err := errors.Join(err, there.Close()); err != nil || !torn(b, e.Bytes) {
		return false, err
	}
	return false, s.root.Rename(s.journal.temps[len(s.journal.temps)-1], file)
}
