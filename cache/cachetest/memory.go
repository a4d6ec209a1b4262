// Package cachetest has what tests of everything around a cache.Store need: a store in memory, one that fails by
// rule, one that dies after a number of effects, and Run, the suite that every store passes.
//
// Nothing that ships imports it. All stores here may be used from any goroutine. Start reading at Run.
package cachetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"lector/cache"
)

// Memory is a store in memory. The zero value is ready.
type Memory struct {
	// Now is the store's clock; nil is time.Now.
	Now func() time.Time

	mu      sync.Mutex
	objects map[string]object
}

type object struct {
	body []byte
	time time.Time
}

var _ cache.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{} }

// Clone copies what is stored now: what another process would find.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{Now: m.Now, objects: maps.Clone(m.objects)}
}

// Names lists the stored names in order.
func (m *Memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.objects))
}

// Bytes returns a copy of an object's bytes, and whether it is there.
func (m *Memory) Bytes(name string) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	return bytes.Clone(o.body), ok
}

// SetBytes puts any bytes under a name, as damage does. The object's time stays.
func (m *Memory) SetBytes(name string, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		o.time = m.now()
	}
	m.set(name, object{bytes.Clone(body), o.time})
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

func (m *Memory) set(name string, o object) {
	if m.objects == nil {
		m.objects = make(map[string]object)
	}
	m.objects[name] = o
}

// Put implements cache.Store.
func (m *Memory) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	if err := begin(ctx, name); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	if int64(len(b)) != size {
		return fmt.Errorf("put %s: body has %d bytes, not %d", name, len(b), size)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[name]; ok && how == cache.IfAbsent {
		return fmt.Errorf("put %s: %w", name, cache.ErrExists)
	}
	m.set(name, object{b, m.now()})
	return nil
}

// Get implements cache.Store.
func (m *Memory) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := begin(ctx, name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", name, cache.ErrNotFound)
	}
	size := int64(len(o.body))
	if off < 0 || off > size || n > size-off {
		return nil, fmt.Errorf("get %s: %d bytes from %d are beyond its end at %d", name, n, off, size)
	}
	if n < 0 {
		n = size - off
	}
	return io.NopCloser(bytes.NewReader(o.body[off : off+n])), nil
}

// Stat implements cache.Store.
func (m *Memory) Stat(ctx context.Context, name string) (cache.Object, error) {
	if err := begin(ctx, name); err != nil {
		return cache.Object{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return cache.Object{}, fmt.Errorf("look for %s: %w", name, cache.ErrNotFound)
	}
	return cache.Object{Name: name, Size: int64(len(o.body)), Time: o.time}, nil
}

// List implements cache.Store.
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		if err := cache.CheckPrefix(prefix); err != nil {
			yield(cache.Object{}, err)
			return
		}
		for _, name := range m.Names() {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			o, err := m.Stat(ctx, name)
			if err == nil {
				if !yield(o, nil) {
					return
				}
				continue
			}
			if ctx.Err() != nil {
				yield(cache.Object{}, err)
				return
			}
		}
	}
}

// Delete implements cache.Store.
func (m *Memory) Delete(ctx context.Context, name string) error {
	if err := begin(ctx, name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

// begin is what every call refuses first.
func begin(ctx context.Context, name string) error {
	if err := cache.CheckName(name); err != nil {
		return err
	}
	return ctx.Err()
}
