package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	if folder, id, ok := strings.Cut(what, "/resume-"); ok { // a resume's id is its own in every run
		what = folder + "/resume" + strings.TrimLeft(id, "0123456789abcdef")
	}
	if i := strings.Index(what, "/results/resume-"); i >= 0 {
		what = what[:i] + "/results/resume"
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

// mortalStager makes effects of what a spool does on its disk, or a store that stages; what is put from there reaches the
// store of its own accord, or through puts.
type mortalStager struct {
	cache.Stager
	*mortal
	puts bool // nothing else sees them
}

// mortalStagingStore can stage.
type mortalStagingStore struct {
	mortalStore
	stager mortalStager
}

func (s mortalStagingStore) Stage(ctx context.Context, sizes []int64) (cache.Batch, error) {
	return s.stager.Stage(ctx, sizes)
}

// mortalView is a store as a mortal process sees it. It can stage where the store can.
func mortalView(s cache.Store, m *mortal) cache.Store {
	if st, ok := s.(cache.Stager); ok {
		return mortalStagingStore{mortalStore{s, m}, mortalStager{st, m, true}}
	}
	return mortalStore{s, m}
}

func (s mortalStager) Stage(ctx context.Context, sizes []int64) (b cache.Batch, err error) {
	if err := s.look(); err != nil {
		return nil, err
	}
	b, err = s.Stager.Stage(ctx, sizes)
	return mortalBatch{b, s.mortal, s.puts}, err
}

type mortalBatch struct {
	cache.Batch
	*mortal
	puts bool
}

func (b mortalBatch) Add(ctx context.Context, body io.ReadSeeker, size int64) (staged cache.Staged, err error) {
	err = b.try("spool", func() error {
		staged, err = b.Batch.Add(ctx, body, size)
		return err
	})
	if b.puts {
		staged = mortalStaged{staged, b.mortal}
	}
	return staged, err
}

func (b mortalBatch) PutAll(ctx context.Context, names []cache.Naming) error {
	j, ok := b.Batch.(cache.Joint)
	if !ok || !b.puts {
		return errors.ErrUnsupported
	}
	var inner []cache.Naming
	for _, n := range names {
		inner = append(inner, cache.Naming{Staged: n.Staged.(mortalStaged).Staged, Name: n.Name})
	}
	return b.try("put all, the last "+names[len(names)-1].Name, func() error { return j.PutAll(ctx, inner) })
}

func (b mortalBatch) Sync(ctx context.Context) error {
	return b.try("sync the spool", func() error { return b.Batch.Sync(ctx) })
}

type mortalStaged struct {
	cache.Staged
	*mortal
}

func (t mortalStaged) Put(ctx context.Context, name string, how cache.PutMode) error {
	return t.try("put "+name, func() error { return t.Staged.Put(ctx, name, how) })
}

func (b mortalBatch) Close() error { return b.try("empty the spool", b.Batch.Close) }

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
	c := crashes{tokens: 11*enginetest.ToyGrid + 3, spread: 3, repeated: enginetest.ToyGrid, world: inMemory(false), both: true, bubble: true}
	if n := c.run(t); n < 50 {
		t.Errorf("an ingest had only %d effects", n)
	}
}

// The same where the store takes one cell while the next is computed: at most one finished cell is lost, the one on its
// way, beside the one that is being computed.
func TestCrashAtEveryEffectBehindCompute(t *testing.T) {
	c := crashes{tokens: 11*enginetest.ToyGrid + 3, spread: 3, repeated: 2 * enginetest.ToyGrid, world: inMemory(true), both: true, bubble: true}
	if n := c.run(t); n < 70 {
		t.Errorf("an ingest had only %d effects", n)
	}
}

// world is what outlives a process: a store, and a spool's folder.
type world struct {
	store func() cache.Store // a view of its own
	// spool is what a process stages in, nil for what its store has, and how the end of the process leaves it.
	spool func(cache.Store) (spool cache.Stager, end func())
	check func(plain func(*rig)) // after all; plain does the same in a rig where nobody dies
}

// inMemory has what the rig has, and a spool that goes with its process.
func inMemory(spooled bool) func(*rig) world {
	return func(r *rig) world {
		w := world{store: func() cache.Store { return r.store }, check: func(func(*rig)) {}}
		if spooled {
			w.spool = func(s cache.Store) (cache.Stager, func()) { return cachetest.NewSpool(s, 1<<20), func() {} }
		}
		return w
	}
}

// crashes kills an ingest at every effect.
type crashes struct {
	tokens   int
	spread   int // states that are kept
	repeated int // most tokens that are computed again
	world    func(*rig) world
	both     bool // die after each effect, too; otherwise the next one's "before" is the same to the world
	bubble   bool // time is not real
}

// run returns how many effects there were.
func (c crashes) run(t *testing.T) int {
	life := &mortal{}
	want := ""
	inTime(t, c.bubble, func(t *testing.T) {
		r := newRig(t)
		w := c.world(r)
		id := c.submit(r, w)
		c.work(r, w, life)
		want = r.receipt(id).HandleDigest
		w.check(c.plain)
	})
	for _, at := range life.effects {
		inTime(t, c.bubble, func(t *testing.T) {
			if !c.bubble {
				t.Parallel()
			}
			c.die(newRig(t), &mortal{at: at}, want)
		})
		if c.both {
			inTime(t, c.bubble, func(t *testing.T) { c.die(newRig(t), &mortal{at: at, after: true}, want) })
		}
	}
	return len(life.effects)
}

// inTime runs a part of a test in a time of its own, or in ours.
func inTime(t *testing.T, bubble bool, do func(*testing.T)) {
	if bubble {
		synctest.Test(t, do)
		return
	}
	t.Run("", do)
}

// submit stores the document and its order.
func (c crashes) submit(r *rig, w world) string {
	r.Helper()
	return r.submit(r.ingestJobIn(w.store(), prose(c.tokens), worker.IngestOptions{
		TTL: time.Hour, Submitted: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}))
}

// plain does the same where nobody dies and nothing is staged.
func (c crashes) plain(r *rig) {
	w := inMemory(false)(r)
	c.submit(r, w)
	c.work(r, w, nil)
}

// work lets a process, mortal or not (nil), work on the next delivery, with views of its own.
func (c crashes) work(r *rig, w world, life *mortal) {
	r.Helper()
	p, end := r.process(w, life)
	defer end()
	p.Config.KeepSpread = c.spread
	r.turn(p)
}

// process has views of a world of its own, and is mortal or not (nil).
func (r *rig) process(w world, life *mortal) (p *worker.Worker, end func()) {
	r.Helper()
	p, end = r.another(r.toy), func() {}
	store := w.store()
	if life != nil {
		p.Queue, store = mortalQueue{r.queue, life}, mortalView(store, life)
	}
	p.Space = &cache.Space{Store: store}
	if w.spool != nil {
		p.Space.Spool, end = w.spool(store)
		if life != nil {
			p.Space.Spool = mortalStager{p.Space.Spool, life, false}
		}
	}
	return p, end
}

// die kills one process at one effect, and checks what is left and what the next one makes of it.
func (c crashes) die(r *rig, life *mortal, want string) {
	died := fmt.Sprintf("died at %s (after: %v)", life.at, life.after)
	w := c.world(r)
	id := c.submit(r, w)
	c.work(r, w, life)
	if !life.dead {
		r.Fatalf("%s did not happen", life.at)
	}
	c.lost(r, w, id, died)
	r.queue = r.queue.Restart()
	if r.queue.Pending() > 0 {
		c.work(r, w, nil)
	}
	if got := r.receipt(id); got.HandleDigest != want {
		r.Errorf("promise 8: %s: handle is %s, want %s", died, got.HandleDigest, want)
	}
	if n := r.toy.Prefilled(); n > c.tokens+c.repeated {
		r.Errorf("promise 8: %s: %d tokens were computed for %d", died, n, c.tokens)
	}
	if names := namesOf(r, w.store(), "default/rolling/"); len(names) > 0 {
		r.Errorf("%s: %v is left", died, names)
	}
	if events := r.types(id); events[len(events)-1] != queue.EventDone {
		r.Errorf("%s: the story ends with %s", died, events[len(events)-1])
	}
	w.check(c.plain)
}

// lost counts the finished cells that the store does not have, which are those that the story told of, and holds every
// handle that shows against what it names.
func (c crashes) lost(r *rig, w world, id, died string) {
	tokens, space := prose(c.tokens), &cache.Space{Store: w.store()}
	keys := cache.Keys(r.identity().Producer, tokens, cache.Boundaries(len(tokens), enginetest.ToyGrid))
	stored, _, err := space.Deepest(r.Context(), id, keys)
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
	for h, err := range space.Handles(r.Context()) {
		if err != nil {
			r.Fatal(err)
		}
		m, err := space.Manifest(r.Context(), h.Handle.Manifest)
		if err == nil {
			_, err = space.Verify(r.Context(), m)
		}
		if err != nil {
			r.Errorf("%s: a handle shows, and %v", died, err)
		}
	}
}

func namesOf(r *rig, s cache.Store, prefix string) (names []string) {
	for o, err := range s.List(r.Context(), prefix) {
		if err != nil {
			r.Fatal(err)
		}
		names = append(names, o.Name)
	}
	return names
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
