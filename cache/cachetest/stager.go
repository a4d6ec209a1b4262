package cachetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"lector/cache"
)

// RunStager is what every cache.Stager must do. open returns one whose room is not taken, and the empty store that
// its objects go to.
func RunStager(t *testing.T, open func(t *testing.T) (cache.Stager, cache.Store)) {
	for _, c := range []struct {
		name string
		test func(*testing.T, cache.Stager, cache.Store)
	}{
		{"put", stagedPut},
		{"put again", stagedPutAgain},
		{"sizes", stagedSizes},
		{"room", stagedRoom},
		{"close", stagedClose},
		{"cancelled", stagedCancelled},
		{"at once", stagedAtOnce},
		{"not synced", stagedNotSynced},
		{"all at once", stagedTogether},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, store := open(t)
			c.test(t, st, store)
		})
	}
}

func stage(t *testing.T, st cache.Stager, bodies ...string) (cache.Batch, []cache.Staged) {
	t.Helper()
	sizes := make([]int64, len(bodies))
	for i, b := range bodies {
		sizes[i] = int64(len(b))
	}
	batch, err := st.Stage(t.Context(), sizes)
	if err != nil {
		t.Fatalf("Stage: %v", err)
	}
	t.Cleanup(func() { batch.Close() })
	var out []cache.Staged
	for _, b := range bodies {
		s, err := batch.Add(t.Context(), strings.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatalf("Add: %v", err)
		}
		out = append(out, s)
	}
	if err := batch.Sync(t.Context()); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	return batch, out
}

// Objects that are named together are there as if each had been put, and a name that is taken stays as it is.
func stagedTogether(t *testing.T, st cache.Stager, store cache.Store) {
	batch, staged := stage(t, st, "rows of a chunk", "node", "rows of another chunk", "mark")
	together, ok := batch.(cache.Joint)
	if !ok {
		return // each is put
	}
	blob, node, more := hexName("t/blobs/", 1), hexName("t/nodes/", 2), hexName("t/blobs/", 3)
	err := together.PutAll(t.Context(), []cache.Naming{{Staged: staged[0], Name: blob}, {Staged: staged[1], Name: node}})
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	err = together.PutAll(t.Context(), []cache.Naming{{Staged: staged[2], Name: more}, {Staged: staged[3], Name: node}})
	if !errors.Is(err, cache.ErrExists) {
		t.Errorf("one name is taken: %v, want ErrExists", err)
	}
	if err := staged[2].Put(t.Context(), more, cache.IfAbsent); err != nil && !errors.Is(err, cache.ErrExists) {
		t.Errorf("put of one that may be there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]context.Context{"../out": t.Context(), "t/late": ctx} {
		if err := together.PutAll(c, []cache.Naming{{Staged: staged[3], Name: name}}); err == nil {
			t.Errorf("%s was put", name)
		}
	}
	if err := batch.Close(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{blob: "rows of a chunk", node: "node", more: "rows of another chunk"} {
		if got := get(t, store, name); got != want {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if got := listed(t, store, ""); len(got) != 3 {
		t.Errorf("the store lists %v", got)
	}
}

// What a power cut could take gets no name.
func stagedNotSynced(t *testing.T, st cache.Stager, store cache.Store) {
	batch, err := st.Stage(t.Context(), []int64{5, 5})
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	for i, name := range []string{hexName("t/blobs/", 1), hexName("t/blobs/", 2)} { // again after a sync
		s, err := batch.Add(t.Context(), strings.NewReader("whole"), 5)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), name, cache.IfAbsent); err == nil {
			t.Errorf("object %d was put and is not synced", i)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := batch.Sync(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Sync: %v, want the context's error", err)
		}
		if err := errors.Join(batch.Sync(t.Context()), batch.Sync(t.Context()), s.Put(t.Context(), name, cache.IfAbsent)); err != nil {
			t.Error(err)
		}
	}
	if got := listed(t, store, ""); len(got) != 2 {
		t.Errorf("the store lists %v", got)
	}
}

// Nothing shows before Put, and then what was added does.
func stagedPut(t *testing.T, st cache.Stager, store cache.Store) {
	batch, staged := stage(t, st, "rows of a chunk", "its state")
	if got := listed(t, store, ""); len(got) != 0 {
		t.Errorf("before the puts the store lists %v", got)
	}
	for i, name := range []string{hexName("t/blobs/", 1), hexName("t/rolling/job/", 2)} {
		if err := staged[i].Put(t.Context(), name, cache.IfAbsent); err != nil {
			t.Fatalf("Put: %v", err)
		}
	}
	if err := batch.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if a, b := get(t, store, hexName("t/blobs/", 1)), get(t, store, hexName("t/rolling/job/", 2)); a != "rows of a chunk" || b != "its state" {
		t.Errorf("the store has %q and %q", a, b)
	}
}

// A put may be repeated, under either mode; it leaves a standing object alone or replaces it.
func stagedPutAgain(t *testing.T, st cache.Stager, store cache.Store) {
	name := hexName("t/blobs/", 1)
	put(t, store, name, "cut", cache.IfAbsent)
	_, staged := stage(t, st, "whole")
	for range 2 {
		if err := staged[0].Put(t.Context(), name, cache.IfAbsent); !errors.Is(err, cache.ErrExists) {
			t.Errorf("put of a taken name: %v, want ErrExists", err)
		}
	}
	if got := get(t, store, name); got != "cut" {
		t.Errorf("the standing object became %q", got)
	}
	for range 2 {
		if err := staged[0].Put(t.Context(), name, cache.Replace); err != nil {
			t.Errorf("replace: %v", err)
		}
	}
	if err := staged[0].Put(t.Context(), "../out", cache.IfAbsent); !errors.Is(err, cache.ErrName) {
		t.Errorf("put of no name: %v", err)
	}
	if got := get(t, store, name); got != "whole" {
		t.Errorf("the store has %q", got)
	}
	if got := listed(t, store, ""); len(got) != 1 {
		t.Errorf("store lists %v", got)
	}
}

// A body that is not of its size is refused and leaves nothing.
func stagedSizes(t *testing.T, st cache.Stager, store cache.Store) {
	for _, size := range []int64{4, 6, 1 << 20} {
		batch, err := st.Stage(t.Context(), []int64{size})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := batch.Add(t.Context(), strings.NewReader("whole"), size); err == nil {
			t.Errorf("a body of 5 bytes was taken as %d", size)
		}
		if err := batch.Close(); err != nil {
			t.Error(err)
		}
	}
	_, staged := stage(t, st, strings.Repeat("0123456789abcdef", 3<<16), "")
	for i, s := range staged {
		if err := s.Put(t.Context(), fmt.Sprint("t/", i), cache.IfAbsent); err != nil {
			t.Fatal(err)
		}
	}
	if got := get(t, store, "t/0"); got != strings.Repeat("0123456789abcdef", 3<<16) {
		t.Errorf("%d bytes came back as others", len(got))
	}
	if got := get(t, store, "t/1"); got != "" {
		t.Errorf("nothing came back as %q", got)
	}
}

// A batch takes what it was opened for and no more.
func stagedRoom(t *testing.T, st cache.Stager, _ cache.Store) {
	batch, _ := stage(t, st, "12345")
	if _, err := batch.Add(t.Context(), strings.NewReader("1"), 1); err == nil {
		t.Error("a full batch took more")
	}
}

// What is closed takes nothing more and can be closed again; its room is free.
func stagedClose(t *testing.T, st cache.Stager, store cache.Store) {
	for range 100 {
		batch, _ := stage(t, st, "12345", "6789")
		for range 2 {
			if err := batch.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := batch.Add(t.Context(), strings.NewReader("12345"), 5); err == nil {
			t.Fatal("a closed batch took more")
		}
	}
	if got := listed(t, store, ""); len(got) != 0 {
		t.Errorf("the store lists %v", got)
	}
}

func stagedCancelled(t *testing.T, st cache.Stager, store cache.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b, err := st.Stage(ctx, []int64{5}); err == nil {
		b.Close()
		t.Error("Stage with a context that is over")
	}
	batch, staged := stage(t, st, "whole")
	if err := staged[0].Put(ctx, "t/a", cache.IfAbsent); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v, want the context's error", err)
	}
	batch.Close()
	batch, err := st.Stage(t.Context(), []int64{5})
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	if _, err := batch.Add(ctx, strings.NewReader("whole"), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("Add: %v, want the context's error", err)
	}
	if got := listed(t, store, ""); len(got) != 0 {
		t.Errorf("the store lists %v", got)
	}
}

// Batches may be filled and put from many goroutines.
func stagedAtOnce(t *testing.T, st cache.Stager, store cache.Store) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			sizes := []int64{100, 100, 100}
			batch, err := st.Stage(t.Context(), sizes)
			if err != nil {
				t.Error(err)
				return
			}
			defer batch.Close()
			var inner, added sync.WaitGroup
			added.Add(len(sizes))
			for j := range sizes {
				inner.Go(func() {
					s, err := batch.Add(t.Context(), strings.NewReader(strings.Repeat(fmt.Sprint(i), 100)), 100)
					added.Done()
					added.Wait()
					if err != nil {
						t.Error(err)
						return
					}
					if err := errors.Join(batch.Sync(t.Context()), s.Put(t.Context(), hexName("t/blobs/", 10*i+j), cache.IfAbsent)); err != nil {
						t.Error(err)
					}
				})
			}
			inner.Wait()
		})
	}
	wg.Wait()
	for i := range 8 {
		if got := get(t, store, hexName("t/blobs/", 10*i)); got != strings.Repeat(fmt.Sprint(i), 100) {
			t.Errorf("batch %d reads %.20q", i, got)
		}
	}
	if got := listed(t, store, ""); len(got) != 24 {
		t.Errorf("the store lists %d objects", len(got))
	}
}
