package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

var errDead = errors.New("this process is dead")

// mortal is a process that dies at one effect on the world: before it takes place, or after it did but before the
// answer came. Nothing that it tries afterwards has an effect. An effect is named by what it does and how many of the
// kind came before it, since what goes on at the same time has no order.
type mortal struct {
	mu      sync.Mutex
	at      string // the effect to die at; "": lives
	after   bool
	effects []string // in the order in which they came
	dead    bool
}

// try carries out an effect.
func (m *mortal) try(what string, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	if i := strings.Index(what, "/rolling/resume-"); i >= 0 { // a resume's id is its own in every run
		what = what[:i] + "/rolling/resume/" + path.Base(what)
	}
	n := 1
	for _, e := range m.effects {
		if strings.HasPrefix(e, what+" #") {
			n++
		}
	}
	name := fmt.Sprint(what, " #", n)
	m.effects = append(m.effects, name)
	if name != m.at {
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
	return s.try("put "+name, func() error { return s.Store.Put(ctx, name, body, size, how) })
}

func (s mortalStore) Delete(ctx context.Context, name string) error {
	return s.try("delete "+name, func() error { return s.Store.Delete(ctx, name) })
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
	return q.try("status "+string(s.State), func() error { return q.Queue.SetStatus(ctx, s) })
}

func (q mortalQueue) Publish(ctx context.Context, e queue.Event) error {
	return q.try("publish "+string(e.Type), func() error { return q.Queue.Publish(ctx, e) })
}

func (q mortalQueue) PublishHandle(ctx context.Context, job string, body []byte) (standing []byte, err error) {
	err = q.try("publish handle", func() error {
		standing, err = q.Queue.PublishHandle(ctx, job, body)
		return err
	})
	return standing, err
}

func (q mortalQueue) Acquire(ctx context.Context, name string, ttl time.Duration) (l queue.Lease, err error) {
	err = q.try("claim "+name, func() error {
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
	return d.try("extend", func() error { return d.Delivery.Extend(ctx) })
}
func (d mortalDelivery) Done(ctx context.Context) error {
	return d.try("done", func() error { return d.Delivery.Done(ctx) })
}
func (d mortalDelivery) Retry(ctx context.Context, after time.Duration) error {
	return d.try("retry", func() error { return d.Delivery.Retry(ctx, after) })
}
func (d mortalDelivery) Reject(ctx context.Context, dead queue.Dead) error {
	return d.try("reject", func() error { return d.Delivery.Reject(ctx, dead) })
}
func (d mortalDelivery) Release(ctx context.Context) error {
	return d.try("release", func() error { return d.Delivery.Release(ctx) })
}

// Promise 8, at every effect of an ingest: the next process finishes with the same handle and computes again at
// most one cell. The document has cells whose state is kept and cells whose state is rolling.
func TestCrashAtEveryEffect(t *testing.T) {
	if n := (crashes{t: t, repeated: enginetest.ToyGrid}).run(); n < 50 {
		t.Errorf("an ingest had only %d effects", n)
	}
}

// The same where the store takes one cell while the next is computed: at most one finished cell is lost, the one on its
// way, beside the one that is being computed.
func TestCrashAtEveryEffectBehindCompute(t *testing.T) {
	if n := (crashes{t: t, repeated: 2 * enginetest.ToyGrid, spool: true}).run(); n < 70 {
		t.Errorf("an ingest had only %d effects", n)
	}
}

// crashes kills an ingest at every effect.
type crashes struct {
	t        *testing.T
	spool    bool
	repeated int // most tokens that are computed again
}

const crashTokens = 11*enginetest.ToyGrid + 3

// run returns how many effects there were.
func (c crashes) run() int {
	life := &mortal{}
	want := ""
	synctest.Test(c.t, func(t *testing.T) {
		r := newRig(t)
		id := c.ingest(r, life)
		want = r.receipt(id).HandleDigest
	})
	for _, at := range life.effects {
		for _, after := range []bool{false, true} {
			synctest.Test(c.t, func(t *testing.T) { c.die(newRig(t), &mortal{at: at, after: after}, want) })
		}
	}
	return len(life.effects)
}

// ingest submits the document and lets a mortal process work on it.
func (c crashes) ingest(r *rig, life *mortal) string {
	submitted := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	id := r.submit(r.ingestJob(prose(crashTokens), worker.IngestOptions{TTL: time.Hour, Submitted: submitted}))
	doomed := r.another(r.toy)
	doomed.Queue, doomed.Space.Store = mortalQueue{r.queue, life}, mortalStore{r.store, life}
	if c.spool {
		spool := cachetest.NewSpool(doomed.Space.Store, 1<<20)
		spool.BeforeAdd = func(context.Context, int64) error { return life.try("spool", func() error { return nil }) }
		doomed.Space.Spool = spool
	}
	doomed.Config.KeepSpread = 3
	r.turn(doomed)
	return id
}

// die kills one process at one effect, and checks what is left and what the next one makes of it.
func (c crashes) die(r *rig, life *mortal, want string) {
	died := fmt.Sprintf("died at %s (after: %v)", life.at, life.after)
	id := c.ingest(r, life)
	if !life.dead {
		r.Fatalf("%s did not happen", life.at)
	}
	c.lost(r, id, died)
	r.revive(id)
	if got := r.receipt(id); got.HandleDigest != want {
		r.Errorf("promise 8: %s: handle is %s, want %s", died, got.HandleDigest, want)
	}
	if n := r.toy.Prefilled(); n > crashTokens+c.repeated {
		r.Errorf("promise 8: %s: %d tokens were computed for %d", died, n, crashTokens)
	}
	for _, name := range r.store.Names() {
		if kindOf(name) == "rolling" {
			r.Errorf("%s: %s is left", died, name)
		}
	}
	if events := r.types(id); events[len(events)-1] != queue.EventDone {
		r.Errorf("%s: the story ends with %s", died, events[len(events)-1])
	}
}

// lost counts the finished cells that the store does not have: those that the story told of.
func (c crashes) lost(r *rig, id, died string) {
	tokens := prose(crashTokens)
	keys := cache.Keys(r.identity().Producer, tokens, cache.Boundaries(len(tokens), enginetest.ToyGrid))
	stored, _, err := r.Space.Deepest(r.Context(), id, keys)
	if err != nil {
		r.Fatal(err)
	}
	finished := 0
	for _, e := range r.types(id) {
		if e == queue.EventProgress {
			finished++
		}
	}
	if finished > stored+1 {
		r.Errorf("promise 8: %s: %d cells were finished, %d are stored", died, finished, stored)
	}
	for _, name := range r.store.Names() {
		if kind := kindOf(name); kind == "handles" && stored < len(keys) {
			r.Errorf("%s: %s shows before its state is stored", died, name)
		}
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
	effects := []string{""}
	for i := 0; i < len(effects); i++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			from := r.ingest(prose(21))
			life := &mortal{at: effects[i], after: i%2 == 0}
			id := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{Text: "and then", MaxTokens: 12, Drafts: 2, Keep: true}))
			doomed := r.another(r.toy)
			doomed.Queue, doomed.Space.Store = mortalQueue{r.queue, life}, mortalStore{r.store, life}
			r.turn(doomed)
			if i > 0 {
				if !life.dead {
					t.Fatalf("%s did not happen", life.at)
				}
				r.revive(id)
			}
			var got worker.Result
			r.result(id, &got)
			if i == 0 {
				effects, want = append(effects, life.effects...), got
				return
			}
			if got.Text != want.Text || got.HandleDigest != want.HandleDigest || got.Usage.Prefilled != want.Usage.Prefilled {
				t.Errorf("died at %s: %+v, want %+v", life.at, got, want)
			}
			r.story(id, got)
		})
	}
}
