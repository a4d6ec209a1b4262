package dir

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"syscall"

	"lector/cache"
)

// List implements cache.Store. An object that goes while the list is read may be left out.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		if err := cache.CheckPrefix(prefix); err != nil {
			yield(cache.Object{}, err)
			return
		}
		folder, _ := path.Split(prefix)
		w := walk{s, ctx, prefix, yield}
		w.folder(folder)
	}
}

// walk is one List.
type walk struct {
	store  *Store
	ctx    context.Context
	prefix string
	yield  func(cache.Object, error) bool
}

// folder yields what lies under a folder's name ("" or ending in a slash); false ends the walk.
func (w walk) folder(name string) bool {
	children, err := w.children(name)
	if err != nil {
		w.yield(cache.Object{}, fail("list", w.prefix, err))
		return false
	}
	for _, child := range children {
		if strings.HasSuffix(child, "/") {
			if !w.folder(child) {
				return false
			}
			continue
		}
		object, err := w.store.Stat(w.ctx, child)
		if errors.Is(err, cache.ErrNotFound) {
			continue
		}
		if !w.yield(object, err) || err != nil {
			return false
		}
	}
	return true
}

// children lists a folder by the names of objects, in order: an object, or (ending in a slash) more of them.
// Folders of digests are looked into here, since their files belong to this folder by name.
func (w walk) children(name string) ([]string, error) {
	entries, err := w.entries(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		full := name + e.Name()
		switch {
		case cache.CheckName(full) != nil: // the folder of temporary files, or not ours
		case e.Type().IsRegular() && !isDigest(e.Name()):
			out = append(out, full)
		case e.IsDir() && (strings.HasPrefix(full, w.prefix) || strings.HasPrefix(w.prefix, full)):
			more, err := w.subfolder(name, e.Name())
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
	}
	out = slices.DeleteFunc(out, func(c string) bool {
		return !strings.HasPrefix(c, w.prefix) && !(strings.HasSuffix(c, "/") && strings.HasPrefix(w.prefix, c))
	})
	slices.Sort(out)
	return out, nil
}

// subfolder is what one folder in a folder stands for: itself, the digests that begin with its two letters, or both.
func (w walk) subfolder(name, sub string) ([]string, error) {
	if len(sub) != 2 {
		return []string{name + sub + "/"}, nil
	}
	entries, err := w.entries(name + sub + "/")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && isDigest(e.Name()) && strings.HasPrefix(e.Name(), sub) {
			out = append(out, name+e.Name())
		}
	}
	if len(out) < len(entries) {
		out = append(out, name+sub+"/")
	}
	return out, nil
}

// entries lists a folder; one that is not there, or went meanwhile, is empty.
func (w walk) entries(name string) ([]fs.DirEntry, error) {
	entries, err := w.store.readFolder(path.Clean("./" + name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return entries, err
}
