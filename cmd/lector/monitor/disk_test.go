package monitor_test

import (
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/local"
	"lector/cache/spool"
	"lector/cmd/lector/monitor"
)

// What waits on this machine's disk is shown as it is now, and copies by what they were of use for.
func TestDiskIsShown(t *testing.T) {
	m := monitor.New(monitor.Build{}, nil)
	address := serve(t, m, monitor.NewHealth())
	far := cachetest.NewMemory()
	sp, err := spool.Open(spool.Options{Folder: t.TempDir(), Quota: 1 << 20, Store: far})
	if err != nil {
		t.Fatal(err)
	}
	defer sp.Close()
	near, err := local.Open(local.Options{Folder: t.TempDir(), Quota: 1 << 20, Store: far})
	if err != nil {
		t.Fatal(err)
	}
	m.Spool(sp)
	m.Copies(near)
	has(t, address, "lector_spool_bytes 0", "lector_spool_quota_bytes 1.048576e+06", "lector_spool_waiting 0", "lector_spool_wait_seconds_total 0")
	batch, err := sp.Stage(t.Context(), []int64{5000})
	if err != nil {
		t.Fatal(err)
	}
	if _, text := get(t, address+"/metrics"); strings.Contains(text, "\nlector_spool_bytes 0\n") {
		t.Error("an open batch takes no room")
	}
	if err := batch.Close(); err != nil {
		t.Fatal(err)
	}
	name := "default/blobs/" + cache.Sum([]byte("x")).String()
	if err := far.Put(t.Context(), name, strings.NewReader("x"), 1, cache.IfAbsent); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := near.Get(t.Context(), name, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 8)); err == nil {
			t.Fatal("more than one byte")
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	has(t, address, "lector_spool_bytes 0", `lector_local_copies_total{result="miss"} 1`, `lector_local_copies_total{result="hit"} 1`, `lector_local_copies_total{result="kept"} 1`)
}
