package worker_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lector/cache"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

var errDead = errors.New("this process is dead")

// mortal is a process that dies at its n-th effect on the world: before it takes place, or after it did but
// before the answer came. Nothing that it tries afterwards has an effect.
type mortal struct {
	mu      sync.Mutex
	at      int // the effect to die at, from 1; 0: lives
	after   bool
	effects int
	dead    bool
}

// try carries out an effect.
func (m *mortal) try(do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	if m.effects++; m.effects != m.at {
		return do()
	}
	m.dead = true
	if m.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errDead
}

// look carries out what changes nothing.
func (m *mortal) look() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	return nil
}

type mortalStore struct {
	cache.Store
	*mortal
}

func (s mortalStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	return s.try(func() error { return s.Store.Put(ctx, name, body, size, how) })
}

func (s mortalStore) Delete(ctx context.Context, name string) error {
	return s.try(func() error { return s.Store.Delete(ctx, name) })
}

func (s mortalStore) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := s.look(); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, name, off, n)
}

func (s mortalStore) Stat(ctx context.Context, name string) (cache.Object, error) {
	if err := s.look(); err != nil {
		return cache.Object{}, err
	}
	return s.Store.Stat(ctx, name)
}

type mortalQueue struct {
	queue.Queue
	*mortal
}

func (q mortalQueue) SetStatus(ctx context.Context, s queue.Status) error {
	return q.try(func() error { return q.Queue.SetStatus(ctx, s) })
}

func (q mortalQueue) Publish(ctx context.Context, e queue.Event) error {
	return q.try(func() error { return q.Queue.Publish(ctx, e) })
}

func (q mortalQueue) PublishHandle(ctx context.Context, job string, body []byte) (standing []byte, err error) {
	err = q.try(func() error {
		standing, err = q.Queue.PublishHandle(ctx, job, body)
		return err
	})
	return standing, err
}

func (q mortalQueue) Acquire(ctx context.Context, name string, ttl time.Duration) (l queue.Lease, err error) {
	err = q.try(func() error {
		l, err = q.Queue.Acquire(ctx, name, ttl)
		return err
	})
	return l, err
}

func (q mortalQueue) Next(ctx context.Context, kinds ...queue.Kind) (queue.Delivery, error) {
	d, err := q.Queue.Next(ctx, kinds...)
	return mortalDelivery{d, q.mortal}, err
}

type mortalDelivery struct {
	queue.Delivery
	*mortal
}

func (d mortalDelivery) Extend(ctx context.Context) error {
	return d.try(func() error { return d.Delivery.Extend(ctx) })
}
func (d mortalDelivery) Done(ctx context.Context) error {
	return d.try(func() error { return d.Delivery.Done(ctx) })
}
func (d mortalDelivery) Retry(ctx context.Context, after time.Duration) error {
	return d.try(func() error { return d.Delivery.Retry(ctx, after) })
}
func (d mortalDelivery) Reject(ctx context.Context, dead queue.Dead) error {
	return d.try(func() error { return d.Delivery.Reject(ctx, dead) })
}
func (d mortalDelivery) Release(ctx context.Context) error {
	return d.try(func() error { return d.Delivery.Release(ctx) })
}

// Promise 8, at every effect of an ingest: the next process finishes with the same handle and computes again at
// most one cell. The document has cells whose state is kept and cells whose state is rolling.
func TestCrashAtEveryEffect(t *testing.T) {
	const tokens = 11*enginetest.ToyGrid + 3
	submitted := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var want string
	effects := 0
	for at := 0; at <= effects; at++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				life := &mortal{at: at, after: after}
				id := r.submit(r.ingestJob(prose(tokens), worker.IngestOptions{TTL: time.Hour, Submitted: submitted}))
				doomed := r.another(r.toy)
				doomed.Queue, doomed.Space.Store = mortalQueue{r.queue, life}, mortalStore{r.store, life}
				doomed.Config.KeepSpread = 3
				r.turn(doomed)
				if at == 0 {
					effects, want = life.effects, r.receipt(id).HandleDigest
					return
				}
				if !life.dead {
					t.Fatalf("effect %d of %d did not happen", at, effects)
				}
				r.revive(id)
				if got := r.receipt(id); got.HandleDigest != want {
					t.Errorf("promise 8: died at effect %d (after: %v): handle is %s, want %s", at, after, got.HandleDigest, want)
				}
				if n := r.toy.Prefilled(); n > tokens+enginetest.ToyGrid {
					t.Errorf("promise 8: died at effect %d (after: %v): %d tokens were computed for %d", at, after, n, tokens)
				}
				for _, name := range r.store.Names() {
					if kindOf(name) == "rolling" {
						t.Errorf("died at effect %d (after: %v): %s is left", at, after, name)
					}
				}
				if events := r.types(id); events[len(events)-1] != queue.EventDone {
					t.Errorf("died at effect %d (after: %v): the story ends with %s", at, after, events[len(events)-1])
				}
			})
		}
	}
	if effects < 50 {
		t.Errorf("an ingest had only %d effects", effects)
	}
}

// revive starts a process over what the dead one left, and lets it settle the job.
func (r *rig) revive(id string) {
	r.Helper()
	r.queue = r.queue.Restart()
	next := r.another(r.toy)
	next.Config.KeepSpread = 3
	if r.queue.Pending() > 0 {
		r.turn(next)
	}
	if n := r.queue.Pending(); n > 0 {
		r.Errorf("%d jobs are left, job is %+v", n, r.status(id))
	}
}

// A resume that keeps its state, killed at every effect, gives the same text and the same handle.
func TestResumeCrashAtEveryEffect(t *testing.T) {
	var want worker.Result
	effects := 0
	for at := 0; at <= effects; at++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			from := r.ingest(prose(21))
			life := &mortal{at: at, after: at%2 == 0}
			id := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{Text: "and then", MaxTokens: 12, Drafts: 2, Keep: true}))
			doomed := r.another(r.toy)
			doomed.Queue, doomed.Space.Store = mortalQueue{r.queue, life}, mortalStore{r.store, life}
			r.turn(doomed)
			if at > 0 {
				r.revive(id)
			}
			var got worker.Result
			r.result(id, &got)
			if at == 0 {
				effects, want = life.effects, got
				return
			}
			if got.Text != want.Text || got.HandleDigest != want.HandleDigest || got.Usage.Prefilled != want.Usage.Prefilled {
				t.Errorf("died at effect %d: %+v, want %+v", at, got, want)
			}
			r.story(id, got)
		})
	}
}
