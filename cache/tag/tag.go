// Package tag gives handles names that people choose: tags/<name> holds the digest of a handle and the name. It owns the tags
// folder of a tenant.
//
// What it promises:
//
//  1. A tag points at a handle that was stored when it was set.
//  2. Setting a tag anew replaces it in one step: a reader sees the old handle or the new one.
//
// A tag keeps its handle's state from being collected, expired or not; the expiry itself stays. It refuses names that
// a handle could have. All functions may be called from any goroutine. Start reading at Find.
package tag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"strings"
	"time"

	"lector/cache"
)

// ErrName says that a text cannot be the name of a tag; the message says why.
var ErrName = errors.New("not a tag")

// maxName bounds a name, which people type.
const maxName = 128

// body is what a tag holds: the digest of its handle in hex and its own name, so that one tag's bytes are not taken for
// another's.
func body(name string, handle cache.Digest) string { return handle.String() + " " + name + "\n" }

// Tag is a name and the handle that it stands for.
type Tag struct {
	Name   string
	Handle cache.Digest
	Set    time.Time // by the store's clock
}

// CheckName refuses, as ErrName, what is no name of a tag: letters, digits, '.', '_' and '-', not beginning as a
// handle does.
func CheckName(name string) error {
	switch {
	case strings.Contains(name, "/") || cache.CheckName(name) != nil || len(name) > maxName:
		return fmt.Errorf("tag %.80q: %w: a name has 1 to %d letters, digits, '.', '_' and '-'", name, ErrName, maxName)
	case strings.HasPrefix(strings.ToLower(name), "lh1-"):
		return fmt.Errorf("tag %.80q: %w: handles begin with lh1-", name, ErrName)
	}
	return nil
}

// Folder is where the tags of a space lie.
func Folder(s *cache.Space) string { return s.TenantName() + "/tags/" }

// Set points a name at a stored handle, in place of what it pointed at. Errors: ErrName, those of cache.Space.Handle.
func Set(ctx context.Context, s *cache.Space, name string, handle cache.Digest) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := s.Handle(ctx, handle); err != nil {
		return fmt.Errorf("set tag %s: %w", name, err)
	}
	b := body(name, handle)
	if err := s.Store.Put(ctx, Folder(s)+name, strings.NewReader(b), int64(len(b)), cache.Replace); err != nil {
		return fmt.Errorf("set tag %s: %w", name, err)
	}
	return nil
}

// Get is the handle that a name points at. Errors: ErrName, cache.ErrNotFound, cache.ErrCorrupt.
func Get(ctx context.Context, s *cache.Space, name string) (d cache.Digest, err error) {
	if err := CheckName(name); err != nil {
		return d, err
	}
	r, err := s.Store.Get(ctx, Folder(s)+name, 0, -1)
	if errors.Is(err, cache.ErrNotFound) {
		return d, fmt.Errorf("tag %s: %w: lector snapshot tag lists those that are", name, cache.ErrNotFound)
	}
	if err != nil {
		return d, err
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(len(body(name, d)))+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return d, fmt.Errorf("read tag %s: %w", name, err)
	}
	text, _, _ := strings.Cut(string(b), " ")
	if d, err = cache.ParseDigest(text); err != nil || string(b) != body(name, d) {
		return cache.Digest{}, fmt.Errorf("tag %s does not hold the digest of a handle and its own name: %w: set it again", name, cache.ErrCorrupt)
	}
	return d, nil
}

// Remove takes a name away; its handle stays. Removing what is not there is success.
func Remove(ctx context.Context, s *cache.Space, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := s.Store.Delete(ctx, Folder(s)+name); err != nil {
		return fmt.Errorf("remove tag %s: %w", name, err)
	}
	return nil
}

// All yields every tag in order of name. A damaged one is an error beside its name, and the listing goes on; an error
// without a name ends it.
func All(ctx context.Context, s *cache.Space) iter.Seq2[Tag, error] {
	return func(yield func(Tag, error) bool) {
		for o, err := range s.Store.List(ctx, Folder(s)) {
			if err != nil {
				yield(Tag{}, fmt.Errorf("list tags: %w", err))
				return
			}
			name := path.Base(o.Name)
			if Folder(s)+name != o.Name || CheckName(name) != nil {
				continue // not a tag of ours
			}
			d, err := Get(ctx, s, name)
			if errors.Is(err, cache.ErrNotFound) {
				continue // removed meanwhile
			}
			if !yield(Tag{name, d, o.Time}, err) {
				return
			}
		}
	}
}

// Find reads the handle that a person names: by a tag, or by its printed name or the beginning of one.
// Errors: those of Get and of cache.Space.FindHandle.
func Find(ctx context.Context, s *cache.Space, name string) (cache.Digest, cache.Handle, error) {
	if CheckName(name) != nil {
		return s.FindHandle(ctx, name)
	}
	d, err := Get(ctx, s, name)
	if errors.Is(err, cache.ErrNotFound) {
		return d, cache.Handle{}, fmt.Errorf("%q is not a handle, which begins with lh1-, and no tag has that name: %w", name, cache.ErrNotFound)
	}
	if err != nil {
		return d, cache.Handle{}, err
	}
	h, err := s.Handle(ctx, d)
	if err != nil {
		return d, h, fmt.Errorf("tag %s: %w", name, err)
	}
	return d, h, nil
}
