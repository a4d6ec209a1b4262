package worker_test

import (
	"context"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// ticker is a clock that moves only when something takes time.
type ticker struct {
	mu  sync.Mutex
	now time.Time
}

func (c *ticker) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *ticker) take(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// slowStore takes a time for every put and every get.
type slowStore struct {
	cache.Store
	clock    *ticker
	put, get time.Duration
}

func (s slowStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	s.clock.take(s.put)
	return s.Store.Put(ctx, name, body, size, how)
}

func (s slowStore) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	s.clock.take(s.get)
	return s.Store.Get(ctx, name, off, n)
}

// slowQueue takes a time for every claim.
type slowQueue struct {
	queue.Queue
	clock *ticker
	claim time.Duration
	n     int
}

func (q *slowQueue) Acquire(ctx context.Context, name string, ttl time.Duration) (queue.Lease, error) {
	q.n++
	q.clock.take(q.claim)
	return q.Queue.Acquire(ctx, name, ttl)
}

// The seconds of a receipt's parts add up to the whole, and each is where the time went: with one part of the world
// slow at a time, that part has all of it.
func TestReceiptsAddUp(t *testing.T) {
	const grid = enginetest.ToyGrid
	for _, slow := range []string{"nothing", "engine", "claims", "puts", "gets"} {
		t.Run(slow, func(t *testing.T) {
			r := newRig(t)
			clock := &ticker{now: time.Unix(1_700_000_000, 0)}
			r.ingest(prose(2 * grid)) // for the next one to restore
			q := &slowQueue{Queue: r.queue, clock: clock}
			store := slowStore{Store: r.store, clock: clock}
			switch slow {
			case "engine":
				r.toy.BeforePrefill = func(context.Context, int, []engine.Token) error { clock.take(time.Second); return nil }
			case "claims":
				q.claim = time.Second
			case "puts":
				store.put = time.Second
			case "gets":
				store.get = time.Second
			}
			r.Clock, r.Queue, r.Space = clock.Now, q, &cache.Space{Store: store}
			got := r.ingest(prose(5 * grid)).Seconds
			sum := got.Wait + got.Restore + got.Prefill + got.Store + got.Other
			if math.Abs(sum-got.Total) > 1e-9 || min(got.Wait, got.Restore, got.Prefill, got.Store) < 0 || got.Other < -1e-9 {
				t.Fatalf("the parts add up to %v: %+v", sum, got)
			}
			parts := map[string]float64{"engine": got.Prefill, "claims": got.Wait, "puts": got.Store, "gets": got.Restore + got.Store + got.Other}
			for name, seconds := range parts {
				// What is stored is also read back.
				if alike := name+slow == "getsputs" || name+slow == "putsgets"; !alike && (math.Abs(seconds) > 1e-9) != (name == slow) {
					t.Errorf("%s took %v s, and %s was slow: %+v", name, seconds, slow, got)
				}
			}
			if slow == "gets" && (got.Restore < 1 || got.Other < 1) {
				t.Errorf("neither the restore nor the document was read: %+v", got)
			}
			if slow == "claims" && got.Wait != float64(q.n) || slow == "nothing" && got != (worker.IngestSeconds{}) {
				t.Errorf("%d claims: %+v", q.n, got)
			}
		})
	}
}
