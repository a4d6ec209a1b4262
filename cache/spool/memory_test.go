package spool_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/dir"
	"lector/cache/spool"
)

// longDocument is a document of a hundred thousand tokens whose state has the sizes of the built-in model's: 4 KB a token
// and 2 MB fixed. Only its memory is of interest, so that all of it is zero but the ids.
type longDocument struct {
	tokens []int32
	rows   []byte
	ids    []byte
	fixed  []byte
}

const (
	longTokens = 100_000
	longGrid   = 4096
	longRow    = 4096
	longFixed  = 2 << 20
)

func newLongDocument() *longDocument {
	d := &longDocument{tokens: cachetest.Count(1, longTokens), rows: make([]byte, longTokens*longRow), fixed: make([]byte, longFixed)}
	for _, id := range d.tokens {
		d.ids = binary.LittleEndian.AppendUint32(d.ids, uint32(id))
	}
	return d
}

// regions are the state after n tokens.
func (d *longDocument) regions(n int) []cache.Region {
	return []cache.Region{
		{Name: cache.TokensRegion, DType: "i32", Shape: []int{}, Kind: cache.Rows, Data: d.ids[:4*n]},
		{Name: "layers.0.k", DType: "f32", Shape: []int{longRow / 4}, Kind: cache.Rows, Data: d.rows[:longRow*n]},
		{Name: "layers.1.s", DType: "f32", Shape: []int{longFixed / 4}, Kind: cache.Fixed, Data: d.fixed},
	}
}

// allocated is what do allocates, all together.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Storing a document of a hundred thousand tokens behind compute, making its handle and restoring it allocates far less
// than 512 MB all together, so that it never takes as much; verifying takes the blobs that it reads at a time.
func TestLongDocumentMemory(t *testing.T) {
	const limit = 512 << 20
	d := newLongDocument()
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	space := &cache.Space{Store: store, Spool: open(t, spool.Options{Quota: 64 << 20, Store: store})}
	id := cache.NewIdentity([]cache.Field{{Name: "codec", Value: "long"}}, "cpu-f32", longGrid, nil)
	var m cache.Manifest
	steps := map[string]func() error{
		"storing":   func() (err error) { m, err = d.save(t, space, id); return err },
		"restoring": func() error { _, err := space.Restore(t.Context(), m, "", d.tokens, d.regions(longTokens)); return err },
		"verifying": func() error { _, err := space.Verify(t.Context(), m); return err },
	}
	for _, name := range []string{"storing", "restoring", "verifying"} {
		got := allocated(func() {
			if err := steps[name](); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		})
		t.Logf("%s %d bytes of state allocates %d", name, m.Bytes, got)
		if got > limit {
			t.Errorf("%s allocates %d bytes, more than %d", name, got, limit)
		}
	}
}

// save stores cell after cell as an ingest does.
func (d *longDocument) save(t *testing.T, space *cache.Space, id cache.Identity) (cache.Manifest, error) {
	ends := cache.Boundaries(longTokens, longGrid)
	keys := cache.Keys(id.Producer, d.tokens, ends)
	var nodes []cache.Node
	from := 0
	for i, to := range ends {
		a := cache.StepArgs{Identity: id, Job: "job", Key: keys[i], From: from, To: to, Tokens: d.tokens[from:to], Regions: d.regions(to), Keep: i == len(ends)-1}
		if i > 0 {
			a.Parent = keys[i-1]
		}
		step, err := space.Stage(t.Context(), a)
		if err != nil {
			return cache.Manifest{}, err
		}
		n, _, err := step.Commit(t.Context())
		if err == nil {
			err = step.Close()
		}
		if err == nil {
			err = space.DropRolling(t.Context(), "job", &n)
		}
		if err != nil {
			return cache.Manifest{}, fmt.Errorf("cell %d: %w", i, err)
		}
		nodes, from = append(nodes, n), to
	}
	m, digest, err := space.PutManifest(t.Context(), id, nodes)
	if err == nil {
		_, err = space.PutHandle(t.Context(), cache.Handle{Version: cache.HandleVersion, Manifest: digest, Model: id.Model, Tokens: longTokens, Tenant: space.TenantName()})
	}
	return m, err
}
