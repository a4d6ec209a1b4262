// Package seal encrypts what a tenant stores: a Store that wraps another, so that whoever holds the bucket or the disk
// reads neither state, descriptions and token ids nor names. It owns the folders sealed/ and seals/ of a tenant.
//
// What it promises:
//
//  1. Every object is AES-256-GCM in segments, under a key of its own that is derived from the tenant's key, a random salt
//     and the object's name: bytes of another object, in another order, cut or changed anywhere do not open, and nothing
//     of a segment is passed on before it has opened.
//  2. Names are HMACs of the plain names, and so of plaintext digests, with the name itself encrypted behind: two writers
//     of one tenant come to one name, so what is equal is stored once; who lacks the key learns kinds, sizes and times.
//  3. The first key of a ring seals what is written, each opens what was written under it. What is put under the first
//     key never leans on an object of another one: keys are retired by taking them off the ring when nothing of theirs
//     is wanted.
//  4. Open refuses a ring that has no key of a sealed tenant, and Check a tenant that is sealed when there is no ring; the
//     errors name the key ids.
//
// An older object that was replaced under the same name opens when somebody puts it back: only tags and the collector's
// own objects are ever replaced. It refuses names that leave no room for the HMAC. A Store may be used from any goroutine.
// Start reading at Open; stream.go has the form of an object, name.go that of a name.
package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"lector/cache"
)

// Store is a cache.Store that seals what it puts into another.
type Store struct {
	inner  cache.Store
	keys   []Key    // the first seals
	absent []string // ids of keys that the tenant was sealed with and that are not on the ring

	mu     sync.Mutex
	marked map[string]bool // tenants whose mark of the first key stands
}

var _ cache.Store = (*Store)(nil)

// Open wraps a store with the keys of a tenant, the first of which seals. Errors: cache.ErrSealed where the tenant is
// sealed, and with none of these keys.
func Open(ctx context.Context, inner cache.Store, tenant string, keys []Key) (*Store, error) {
	if len(keys) == 0 {
		return nil, errors.New("open sealed store: there is no key")
	}
	s := &Store{inner: inner, keys: slices.Clone(keys), marked: map[string]bool{}}
	ids, err := marks(ctx, inner, tenant)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		i := slices.IndexFunc(keys, func(k Key) bool { return k.id == id })
		if i < 0 {
			s.absent = append(s.absent, id)
			continue
		}
		if err := s.checkMark(ctx, tenant, keys[i]); err != nil {
			return nil, err
		}
	}
	if len(ids) > 0 && len(s.absent) == len(ids) {
		return nil, fmt.Errorf("tenant %s is %w: %s, and the ring has %s", tenant, cache.ErrSealed, strings.Join(ids, ", "), strings.Join(s.IDs(), ", "))
	}
	return s, nil
}

// Check says whether a tenant may be used without keys: cache.ErrSealed naming the key ids when it is sealed.
func Check(ctx context.Context, inner cache.Store, tenant string) error {
	ids, err := marks(ctx, inner, tenant)
	if err == nil && len(ids) > 0 {
		err = fmt.Errorf("tenant %s is %w: %s", tenant, cache.ErrSealed, strings.Join(ids, ", "))
	}
	return err
}

// IDs lists the ids of the ring, that of the sealing key first.
func (s *Store) IDs() []string {
	out := make([]string, len(s.keys))
	for i, k := range s.keys {
		out[i] = k.id
	}
	return out
}

// markFolder holds one object for each key that a tenant was ever sealed with, named by its id.
func markFolder(tenant string) string { return tenant + "/seals/" }

// marks lists the ids of the keys that a tenant was sealed with.
func marks(ctx context.Context, inner cache.Store, tenant string) ([]string, error) {
	var ids []string
	for o, err := range inner.List(ctx, markFolder(tenant)) {
		if err != nil {
			return nil, fmt.Errorf("look for seals of tenant %s: %w", tenant, err)
		}
		if id := path.Base(o.Name); isID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// markBody is what a mark seals.
func markBody(k Key) []byte { return []byte("lector seal " + k.id + "\n") }

// checkMark opens the mark of a key: one that does not open was damaged, or the key is another with the same id.
func (s *Store) checkMark(ctx context.Context, tenant string, k Key) error {
	name := markFolder(tenant) + k.id
	r, err := s.inner.Get(ctx, name, 0, -1)
	if err != nil {
		return fmt.Errorf("read seal of tenant %s: %w", tenant, err)
	}
	opened := newOpener(k, name, r)
	b, err := io.ReadAll(io.LimitReader(opened, 256))
	if err := errors.Join(err, opened.Close()); err != nil {
		return fmt.Errorf("tenant %s: mark of key %s: %w", tenant, k.id, err)
	}
	if !bytes.Equal(b, markBody(k)) {
		return fmt.Errorf("tenant %s: object %s is not the mark of key %s: %w", tenant, name, k.id, cache.ErrCorrupt)
	}
	return nil
}

// mark makes sure that the mark of the sealing key stands before anything is sealed with it.
func (s *Store) mark(ctx context.Context, tenant string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marked[tenant] {
		return nil
	}
	name := markFolder(tenant) + s.keys[0].id
	plain := markBody(s.keys[0])
	body := newSealer(s.keys[0], name, bytes.NewReader(plain), int64(len(plain)))
	err := s.inner.Put(ctx, name, body, body.size, cache.IfAbsent)
	if err != nil && !errors.Is(err, cache.ErrExists) {
		return fmt.Errorf("mark key %s: %w", s.keys[0].id, err)
	}
	s.marked[tenant] = true
	return nil
}

// Put implements cache.Store. It looks at what the first key has sealed alone.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	inner, err := s.keys[0].sealName(name)
	if err != nil {
		return err
	}
	if tenant, _, ok := strings.Cut(name, "/"); ok {
		if err := s.mark(ctx, tenant); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
	}
	if err := sameSize(body, size); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	if err := s.inner.Put(ctx, inner, newSealer(s.keys[0], name, body, size), sealedSize(size), how); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	return nil
}

// sameSize refuses a body that is not of its size: sealed, the difference could hide in the last segment.
func sameSize(body io.ReadSeeker, size int64) error {
	end, err := body.Seek(0, io.SeekEnd)
	if err == nil && end != size {
		err = fmt.Errorf("body has %d bytes, not %d: %w", end, size, io.ErrUnexpectedEOF)
	}
	return err
}

// find calls do with each key's name of an object until one is there.
func (s *Store) find(name string, do func(k Key, inner string) error) error {
	var err error
	for _, k := range s.keys {
		inner, nerr := k.sealName(name)
		if nerr != nil {
			return nerr
		}
		if err = do(k, inner); err == nil || !errors.Is(err, cache.ErrNotFound) {
			break
		}
	}
	switch {
	case err == nil, errors.Is(err, cache.ErrCorrupt), errors.Is(err, cache.ErrIncompatible): // these name the object
		return err
	case errors.Is(err, cache.ErrNotFound) && len(s.absent) > 0:
		return fmt.Errorf("object %s: %w under the keys %s; the tenant is also %w: %s", name, cache.ErrNotFound,
			strings.Join(s.IDs(), ", "), cache.ErrSealed, strings.Join(s.absent, ", "))
	}
	return fmt.Errorf("object %s: %w", name, err)
}

// Get implements cache.Store.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (r io.ReadCloser, err error) {
	err = s.find(name, func(k Key, inner string) error {
		if off == 0 && n < 0 {
			got, err := s.inner.Get(ctx, inner, 0, -1)
			if err == nil {
				r = newOpener(k, name, got)
			}
			return err
		}
		r, err = s.getRange(ctx, k, part{name, inner, off, n})
		return err
	})
	return r, err
}

// Stat implements cache.Store.
func (s *Store) Stat(ctx context.Context, name string) (o cache.Object, err error) {
	err = s.find(name, func(_ Key, inner string) error {
		o, err = s.inner.Stat(ctx, inner)
		return err
	})
	if err != nil {
		return cache.Object{}, err
	}
	return cache.Object{Name: name, Size: openedSize(o.Size), Time: o.Time}, nil
}

// Delete implements cache.Store, under every key.
func (s *Store) Delete(ctx context.Context, name string) error {
	for _, k := range s.keys {
		inner, err := k.sealName(name)
		if err != nil {
			return err
		}
		if err := s.inner.Delete(ctx, inner); err != nil {
			return fmt.Errorf("delete %s: %w", name, err)
		}
	}
	return nil
}

// List implements cache.Store. It holds the names of a listing in memory, since their order is not that of the sealed ones.
// What lies under a key's folder and has no name that the key sealed is left out.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		if err := cache.CheckPrefix(prefix); err != nil {
			yield(cache.Object{}, err)
			return
		}
		var found []cache.Object
		for _, k := range s.keys {
			for o, err := range s.inner.List(ctx, k.sealPrefix(prefix)) {
				if err != nil {
					yield(cache.Object{}, fmt.Errorf("list %s: %w", prefix, err))
					return
				}
				if name, ok := k.openName(o.Name); ok && strings.HasPrefix(name, prefix) {
					found = append(found, cache.Object{Name: name, Size: openedSize(o.Size), Time: o.Time})
				}
			}
		}
		// Stable: of one name under several keys, the first key's object is the one that stands.
		slices.SortStableFunc(found, func(a, b cache.Object) int { return strings.Compare(a.Name, b.Name) })
		last := ""
		for _, o := range found {
			if o.Name != last && !yield(o, nil) {
				return
			}
			last = o.Name
		}
	}
}

// Probe asks the store beneath whether it does what a writer needs, where it can say so.
func (s *Store) Probe(ctx context.Context) error {
	if p, ok := s.inner.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return nil
}
