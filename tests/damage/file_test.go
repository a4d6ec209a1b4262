package damage_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"lector/cache"
	"lector/cache/archive"
	"lector/cache/cachetest"
	"lector/cache/seal"
)

// memory is a file in memory.
type memory struct {
	mu sync.Mutex
	b  []byte
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// exported is the file of a snapshot.
func exported(t *testing.T, w *world, handle cache.Digest) []byte {
	t.Helper()
	var f memory
	if _, err := archive.WriteFile(t.Context(), w.space, handle, &f); err != nil {
		t.Fatal(err)
	}
	return f.b
}

// take brings a file into an empty space.
func take(t *testing.T, b []byte) (cache.Digest, *cachetest.Memory, error) {
	t.Helper()
	to := cachetest.NewMemory()
	from, d, err := archive.ReadFile(bytes.NewReader(b), int64(len(b)))
	if err == nil {
		_, err = archive.Copy(t.Context(), from, &cache.Space{Store: to}, d)
	}
	return d, to, err
}

// A damaged file is refused, and nothing of it is stored.
func TestDamagedFile(t *testing.T) {
	w := newWorld(t, form{name: "plain"})
	t.Run("state", func(t *testing.T) { harmFile(t, w, w.handle) })
	t.Run("ids", func(t *testing.T) { harmFile(t, w, w.ids) })
}

func harmFile(t *testing.T, w *world, handles map[*cachetest.Document]cache.Digest) {
	whole, other := exported(t, w, handles[w.one]), exported(t, w, handles[w.two])
	if d, _, err := take(t, whole); err != nil || d != handles[w.one] {
		t.Fatalf("undamaged: %v, %v", d, err)
	}
	for _, d := range damages(len(whole)) {
		b := d.do(bytes.Clone(whole), bytes.Clone(other), []byte("{}"))
		if bytes.Equal(b, other) {
			continue // it is the other snapshot's whole file
		}
		_, to, err := take(t, b)
		if !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible) && !errors.Is(err, cache.ErrNotFound) {
			t.Errorf("%s: %v", d.name, err)
		}
		if names := to.Names(); len(names) != 0 {
			t.Errorf("%s: stored %v", d.name, names)
		}
	}
}

// A damaged mark of a seal key is said when the store is opened.
func TestDamagedSeal(t *testing.T) {
	key, err := seal.NewKey(bytes.Repeat([]byte{3}, 32))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, form{name: "sealed", sealed: true})
	mark := cache.DefaultTenant + "/seals/" + key.ID()
	whole, ok := w.inner.Bytes(mark)
	if !ok {
		t.Fatalf("no mark among %v", w.inner.Names())
	}
	foreign, _ := w.inner.Bytes(w.beneath(t, handleOf(0)(w)))
	for _, d := range damages(len(whole)) {
		w.inner.SetBytes(mark, d.do(bytes.Clone(whole), bytes.Clone(foreign), bytes.Clone(foreign)))
		_, err := seal.Open(t.Context(), w.inner, cache.DefaultTenant, []seal.Key{key})
		if !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible) || !strings.Contains(err.Error(), key.ID()) {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}
