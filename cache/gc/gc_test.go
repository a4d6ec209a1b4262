package gc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/gc"
	"lector/cache/tag"
)

// world is a store with a clock that the test moves.
type world struct {
	*testing.T
	store *cachetest.Memory
	space *cache.Space
	clock time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, store: cachetest.NewMemory(), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.store.Now = func() time.Time { return w.clock }
	w.space = &cache.Space{Store: w.store, Now: w.store.Now}
	return w
}

func (w *world) document(first, n int) *cachetest.Document {
	return &cachetest.Document{Space: w.space, Tokens: cachetest.Count(first, n), Begin: w.clock, Job: "job"}
}

func (w *world) read(d *cachetest.Document) cache.Digest {
	w.Helper()
	h, _, err := d.Read(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func (w *world) collect(opt gc.Options) gc.Report {
	w.Helper()
	r, err := gc.Run(w.Context(), w.space, opt)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// names are the stored objects, gc's own left out.
func (w *world) names() string {
	var out []string
	for _, name := range w.store.Names() {
		if !strings.HasPrefix(name, "default/gc/") {
			out = append(out, name)
		}
	}
	return strings.Join(out, "\n")
}

func (w *world) check(h cache.Digest, d *cachetest.Document) {
	w.Helper()
	if err := cachetest.Check(w.Context(), w.space, h, d.Tokens); err != nil {
		w.Errorf("restore: %v", err)
	}
}

const day = 24 * time.Hour

// What a handle reaches stays for good; what it alone reached goes after two marks a grace apart, and what another
// shares stays.
func TestSharedPrefixOutlivesOneHandle(t *testing.T) {
	w := newWorld(t)
	a, b := w.document(0, 30), w.document(0, 20)
	one := w.read(a)
	two := w.read(b)
	full := w.names()
	for range 3 {
		w.clock = w.clock.Add(2 * day)
		if r := w.collect(gc.Options{}); r.Deleted.Objects != 0 || r.Waiting.Objects != 0 || r.Next != nil {
			t.Fatalf("live objects: %+v", r)
		}
	}
	if w.names() != full {
		t.Fatal("a live object is gone")
	}
	if err := gc.Remove(t.Context(), w.space, one); err != nil {
		t.Fatal(err)
	}
	r := w.collect(gc.Options{})
	if r.Deleted.Objects != 0 || r.Waiting.Objects == 0 || !r.Next.Equal(w.clock.Add(gc.LeastGrace)) {
		t.Fatalf("first mark: %+v", r)
	}
	w.clock = w.clock.Add(day - time.Second)
	if r = w.collect(gc.Options{}); r.Deleted.Objects != 0 {
		t.Fatalf("before the grace is over: %+v", r)
	}
	w.clock = w.clock.Add(time.Second)
	before := w.names()
	dry := w.collect(gc.Options{DryRun: true})
	if w.names() != before {
		t.Fatal("a dry run changed the store")
	}
	r = w.collect(gc.Options{})
	if r.Deleted != dry.Deleted || r.Deleted.Objects == 0 || r.Deleted.Bytes == 0 || r.Waiting.Objects != 0 {
		t.Errorf("the run deleted %+v, the dry run said %+v", r, dry)
	}
	w.check(two, b)
	alone := newWorld(t)
	alone.read(alone.document(0, 20))
	// The longer document's full cells at 16 tokens are shared; its own cells are gone.
	if w.names() != alone.names() {
		t.Errorf("left:\n%s\nwant:\n%s", w.names(), alone.names())
	}
}

func TestRoots(t *testing.T) {
	for _, c := range []struct {
		name  string
		root  func(*world, *cachetest.Document, cache.Digest) gc.Open
		stays bool
	}{
		{"nothing", func(*world, *cachetest.Document, cache.Digest) gc.Open { return gc.Open{} }, false},
		{"tag", func(w *world, _ *cachetest.Document, h cache.Digest) gc.Open {
			if err := tag.Set(w.Context(), w.space, "book", h); err != nil {
				w.Fatal(err)
			}
			return gc.Open{}
		}, true},
		{"open job", func(_ *world, _ *cachetest.Document, h cache.Digest) gc.Open {
			return gc.Open{Handles: []cache.Digest{h}}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			d := w.document(0, 30)
			d.TTL, d.Keep = time.Hour, func(i int) bool { return i == 1 }
			h := w.read(d)
			open := c.root(w, d, h)
			opt := gc.Options{Open: func(context.Context) (gc.Open, error) { return open, nil }}
			full := w.names()
			for range 3 {
				w.clock = w.clock.Add(2 * day)
				w.collect(opt)
			}
			if c.stays {
				if w.names() != full {
					t.Errorf("left:\n%s", w.names())
				}
				w.check(h, d)
			} else if w.names() != "" {
				t.Errorf("an expired handle left:\n%s", w.names())
			}
		})
	}
}

// A document that is being read keeps itself, its finished cells and its job's rolling state, and nothing of a
// document that only begins like it.
func TestOpenDocument(t *testing.T) {
	w := newWorld(t)
	d := w.document(0, 30)
	if _, err := d.Steps(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	id, err := w.space.PutDocument(t.Context(), d.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	full := w.names()
	branch := &cachetest.Document{Space: w.space, Tokens: append(cachetest.Count(0, 8), cachetest.Count(500, 16)...), Job: "dead"}
	if _, err := branch.Steps(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	open := gc.Open{Documents: []cache.Digest{id}, Jobs: []string{"job"}}
	opt := gc.Options{Open: func(context.Context) (gc.Open, error) { return open, nil }}
	for range 2 {
		w.clock = w.clock.Add(2 * day)
		w.collect(opt)
	}
	if w.names() != full {
		t.Errorf("left:\n%s\nwant:\n%s", w.names(), full)
	}
	w.check(w.read(d), d)
}

// A writer that finds a marked object writes it again, and that counts as a new beginning.
func TestWrittenAgainIsNotCollected(t *testing.T) {
	w := newWorld(t)
	d := w.document(0, 30)
	h := w.read(d)
	if err := gc.Remove(t.Context(), w.space, h); err != nil {
		t.Fatal(err)
	}
	w.collect(gc.Options{})
	w.clock = w.clock.Add(2 * day)
	// The writer has come to its last blob, and has no handle yet.
	again := w.document(0, 30)
	again.Job = "another"
	for _, name := range w.store.Names() {
		if strings.Contains(name, "/nodes/") {
			w.store.Delete(t.Context(), name) // so that every cell is written
		}
	}
	nodes, err := again.Steps(t.Context(), -1)
	if err != nil {
		t.Fatal(err)
	}
	w.clock = w.clock.Add(day) // old enough, and marked before: yet not marked since it was written
	w.collect(gc.Options{})
	if _, _, err := w.space.PutManifest(t.Context(), again.Identity(), nodes); err != nil {
		t.Errorf("the collector took what a writer relies on: %v", err)
	}
}

// A run that dies after any number of effects leaves every root whole, and the next run ends what it began.
func TestInterruptedRun(t *testing.T) {
	prepare := func() (*world, *cachetest.Document, cache.Digest) {
		w := newWorld(t)
		gone, stays := w.document(0, 30), w.document(0, 20)
		gone.Keep = func(int) bool { return true }
		h := w.read(gone)
		kept := w.read(stays)
		if err := gc.Remove(t.Context(), w.space, h); err != nil {
			t.Fatal(err)
		}
		w.clock = w.clock.Add(2 * day)
		w.collect(gc.Options{})
		w.clock = w.clock.Add(2 * day)
		return w, stays, kept
	}
	w, _, _ := prepare()
	w.collect(gc.Options{})
	want := w.names()
	for effects := range 1000 {
		w, stays, kept := prepare()
		crash := cachetest.NewCrash(w.store, effects)
		_, err := gc.Run(t.Context(), &cache.Space{Store: crash, Now: w.space.Now}, gc.Options{})
		if err == nil {
			return
		}
		if !errors.Is(err, cachetest.ErrCrashed) {
			t.Fatalf("after %d effects: %v", effects, err)
		}
		w.check(kept, stays)
		for o, err := range w.space.Handles(t.Context()) {
			if err != nil {
				t.Errorf("after %d effects: handle %v: %v", effects, o, err)
			}
		}
		// Nothing that is left names what is gone.
		for _, name := range w.store.Names() {
			if key, ok := strings.CutPrefix(name, "default/nodes/"); ok {
				k, err := cache.ParseKey(key)
				if err != nil {
					t.Fatal(err)
				}
				n, err := w.space.Node(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range n.Rows {
					if _, err := w.store.Stat(t.Context(), "default/blobs/"+b.Digest.String()); err != nil {
						t.Errorf("after %d effects: node %s lacks a blob", effects, key)
					}
				}
			}
		}
		w.collect(gc.Options{})
		if w.names() != want {
			t.Fatalf("after %d effects and a whole run, left:\n%s", effects, w.names())
		}
	}
	t.Error("the run never ended")
}

// A handle that appears while the sweep is under way saves what it needs.
func TestHandleDuringSweep(t *testing.T) {
	w := newWorld(t)
	d := w.document(0, 30)
	nodes, err := d.Steps(t.Context(), -1)
	if err != nil {
		t.Fatal(err)
	}
	w.clock = w.clock.Add(2 * day)
	w.collect(gc.Options{})
	w.clock = w.clock.Add(2 * day)
	late := &lateHandle{Memory: w.store, publish: func() {
		m, digest, err := w.space.PutManifest(t.Context(), d.Identity(), nodes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.space.PutHandle(t.Context(), cache.Handle{Version: 1, Manifest: digest, Model: m.Identity.Model, Tokens: m.Tokens, Tenant: "default"}); err != nil {
			t.Fatal(err)
		}
	}}
	r, err := gc.Run(t.Context(), &cache.Space{Store: late, Now: w.space.Now}, gc.Options{})
	if err != nil || r.Deleted.Objects != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for h, err := range w.space.Handles(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		w.check(h.Digest, d)
	}
}

// lateHandle publishes something when the marks are stored.
type lateHandle struct {
	*cachetest.Memory
	publish func()
}

func (l *lateHandle) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	if strings.HasSuffix(name, "/gc/marks") {
		l.publish()
	}
	return l.Memory.Put(ctx, name, body, size, how)
}

func TestAlone(t *testing.T) {
	w := newWorld(t)
	h := w.read(w.document(0, 30))
	if err := gc.Remove(t.Context(), w.space, h); err != nil {
		t.Fatal(err)
	}
	if _, err := gc.Run(t.Context(), w.space, gc.Options{Grace: time.Hour}); err == nil {
		t.Error("a short grace beside writers was taken")
	}
	if r := w.collect(gc.Options{Alone: true, Grace: time.Hour}); r.Deleted.Objects != 0 || r.Waiting.Objects == 0 {
		t.Errorf("young objects: %+v", r)
	}
	w.collect(gc.Options{Alone: true})
	if w.names() != "" {
		t.Errorf("left:\n%s", w.names())
	}
}

// What a root needs and cannot be read ends the run before anything goes; what is not known stays.
func TestRefusesWhatItCannotRead(t *testing.T) {
	for _, kind := range []string{"handles", "manifests", "nodes"} {
		w := newWorld(t)
		d := w.document(0, 20)
		d.Keep = func(int) bool { return true }
		w.read(d)
		for _, name := range w.store.Names() {
			if strings.Contains(name, "/"+kind+"/") {
				w.store.SetBytes(name, []byte("damage"))
			}
		}
		before := w.names()
		if _, err := gc.Run(t.Context(), w.space, gc.Options{Alone: true}); !errors.Is(err, cache.ErrCorrupt) {
			t.Errorf("damaged %s: %v", kind, err)
		}
		if w.names() != before {
			t.Errorf("damaged %s: objects are gone", kind)
		}
	}
	w := newWorld(t)
	for _, name := range []string{"default/future/x", "default/blobs/short", "other/blobs/" + cache.Sum(nil).String(), "default/rolling/x"} {
		w.store.SetBytes(name, []byte("x"))
	}
	before := w.names()
	if r := w.collect(gc.Options{Alone: true}); r.Unknown.Objects != 3 || w.names() != before {
		t.Errorf("%+v, left:\n%s", r, w.names())
	}
}

func TestRemoveRefusesTagged(t *testing.T) {
	w := newWorld(t)
	h := w.read(w.document(0, 20))
	if err := tag.Set(t.Context(), w.space, "book", h); err != nil {
		t.Fatal(err)
	}
	if err := gc.Remove(t.Context(), w.space, h); !errors.Is(err, gc.ErrTagged) || !strings.Contains(err.Error(), "book") {
		t.Errorf("Remove: %v", err)
	}
	if err := gc.Remove(t.Context(), w.space, cache.Sum(nil)); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("Remove of an unknown handle: %v", err)
	}
}

// Damaged marks cost a grace and no more.
func TestDamagedMarks(t *testing.T) {
	w := newWorld(t)
	h := w.read(w.document(0, 20))
	if err := gc.Remove(t.Context(), w.space, h); err != nil {
		t.Fatal(err)
	}
	w.collect(gc.Options{})
	w.clock = w.clock.Add(2 * day)
	w.store.SetBytes("default/gc/marks", []byte("lector gc 1\nx default/blobs/y\n"))
	if r := w.collect(gc.Options{}); r.Deleted.Objects != 0 || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
	w.clock = w.clock.Add(2 * day)
	if w.collect(gc.Options{}); w.names() != "" {
		t.Errorf("left:\n%s", w.names())
	}
}

// A result stays while its job is open, and for the grace after that.
func TestResultsGoAfterTheirJobs(t *testing.T) {
	w := newWorld(t)
	if _, err := w.space.PutResult(t.Context(), "job", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	jobs := []string{"job"}
	opt := gc.Options{Open: func(context.Context) (gc.Open, error) { return gc.Open{Jobs: jobs}, nil }}
	for range 3 {
		w.clock = w.clock.Add(2 * day)
		w.collect(opt)
	}
	if _, err := w.space.Result(t.Context(), "job"); err != nil {
		t.Fatalf("the result of an open job: %v", err)
	}
	jobs = nil
	if r := w.collect(opt); r.Waiting.Objects != 1 || r.Unknown.Objects != 0 {
		t.Errorf("after the job's end: %+v", r)
	}
	w.clock = w.clock.Add(2 * day)
	if r := w.collect(opt); r.Kinds["results"].Objects != 1 {
		t.Errorf("a grace later: %+v", r)
	}
	if _, err := w.space.Result(t.Context(), "job"); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("the result is still there: %v", err)
	}
}

// A handle for token ids alone keeps those, and none of the state that others have stored of them.
func TestTokensAloneKeepNoState(t *testing.T) {
	w := newWorld(t)
	d := w.document(0, 30)
	full := w.read(d)
	m, digest, err := w.space.PutTokens(t.Context(), d.Identity(), d.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	h := cache.Handle{Version: cache.HandleVersion, Manifest: digest, Model: d.Identity().Model, Tokens: 30, Tenant: cache.DefaultTenant}
	if _, err := w.space.PutHandle(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := gc.Remove(t.Context(), w.space, full); err != nil {
		t.Fatal(err)
	}
	w.collect(gc.Options{Alone: true})
	ids, err := w.space.Tokens(t.Context(), m)
	if err != nil || len(ids) != 30 {
		t.Errorf("ids: %v, %v", ids, err)
	}
	for _, kind := range []string{"/nodes/", "/keep/"} {
		if strings.Contains(w.names(), kind) {
			t.Errorf("the state's %s stays:\n%s", kind, w.names())
		}
	}
	if got, want := strings.Count(w.names(), "/blobs/"), len(m.Pieces()); got != want {
		t.Errorf("%d blobs stay, the ids have %d", got, want)
	}
}
