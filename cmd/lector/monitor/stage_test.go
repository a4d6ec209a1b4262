package monitor_test

import (
	"errors"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/dir"
	"lector/cmd/lector/monitor"
)

// A store that can stage still can when it is counted, and what is put from there counts.
func TestCountedStager(t *testing.T) {
	open := func(t *testing.T) (*monitor.Metrics, cache.Store) {
		s, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		m := monitor.New(monitor.Build{}, nil)
		return m, m.Store(s)
	}
	cachetest.RunStager(t, func(t *testing.T) (cache.Stager, cache.Store) {
		_, s := open(t)
		return s.(cache.Stager), s
	})
	m, s := open(t)
	batch, err := s.(cache.Stager).Stage(t.Context(), []int64{5})
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	staged, err := batch.Add(t.Context(), strings.NewReader("whole"), 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(batch.Sync(t.Context()), staged.Put(t.Context(), "t/blobs/a", cache.IfAbsent)); err != nil {
		t.Fatal(err)
	}
	has(t, serve(t, m, monitor.NewHealth()), `lector_store_bytes_total{op="put"} 5`, `lector_store_requests_total{op="put",result="ok"} 1`)
	if _, ok := m.Store(cachetest.NewMemory()).(cache.Stager); ok {
		t.Error("a store that cannot stage says that it can")
	}
}
