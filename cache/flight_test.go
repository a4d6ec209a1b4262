package cache_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
)

// crowd holds the first reads of blobs back until a number of them are there at once, and counts the most that
// ever were.
type crowd struct {
	cache.Store
	want int

	mu      sync.Mutex
	inside  int
	most    int
	all     chan struct{}
	arrived int
}

func (c *crowd) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if !strings.Contains(name, "/blobs/") {
		return c.Store.Get(ctx, name, off, n)
	}
	c.mu.Lock()
	c.inside++
	c.most = max(c.most, c.inside)
	if c.arrived++; c.arrived == c.want {
		close(c.all)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.inside--
		c.mu.Unlock()
	}()
	select {
	case <-c.all:
		return c.Store.Get(ctx, name, off, n)
	case <-time.After(time.Minute): // only a restore that reads fewer at a time waits so long
		return nil, fmt.Errorf("get %s: %d reads came, not %d", name, c.arrived, c.want)
	}
}

// A restore reads four blobs at a time, and never more.
func TestRestoreReadsSeveralBlobs(t *testing.T) {
	store := cachetest.NewMemory()
	d := newDocument(store, count(100, 60))
	m, _ := d.mustRead(t)
	c := &crowd{Store: store, want: 4, all: make(chan struct{})}
	d.space.Store = c
	got := blank(d.layout, 60)
	if _, err := d.space.Restore(t.Context(), m, "", d.tokens, got); err != nil {
		t.Fatal(err)
	}
	if c.most != 4 || !sameData(got, state(d.layout, d.tokens)) {
		t.Errorf("%d reads at once", c.most)
	}
}
