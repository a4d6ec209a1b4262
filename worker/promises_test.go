package worker_test

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// journal notes the effects on a store and a queue in order.
type journal struct {
	mu    sync.Mutex
	notes []string
}

func (j *journal) note(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, s)
}

// first is the place of the first note that begins so; it must be there.
func (j *journal) first(t *testing.T, prefix string) int {
	t.Helper()
	i := slices.IndexFunc(j.notes, func(n string) bool { return strings.HasPrefix(n, prefix) })
	if i < 0 {
		t.Fatalf("nothing begins with %q in %v", prefix, j.notes)
	}
	return i
}

func (j *journal) last(prefix string) int {
	for i := len(j.notes) - 1; i >= 0; i-- {
		if strings.HasPrefix(j.notes[i], prefix) {
			return i
		}
	}
	return -1
}

// notedStore notes puts and gets as "put nodes" and "get manifests".
type notedStore struct {
	cache.Store
	*journal
}

func kindOf(name string) string { return strings.Split(name, "/")[1] }

func (s notedStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	err := s.Store.Put(ctx, name, body, size, how)
	if err == nil {
		s.note("put " + kindOf(name) + " " + path.Base(name))
	}
	if how == cache.Replace {
		s.note("replace " + kindOf(name))
	}
	return err
}

func (s notedStore) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	s.note("get " + kindOf(name))
	return s.Store.Get(ctx, name, off, n)
}

// notedQueue notes publishing and settling.
type notedQueue struct {
	queue.Queue
	*journal
}

func (q notedQueue) PublishHandle(ctx context.Context, job string, body []byte) ([]byte, error) {
	standing, err := q.Queue.PublishHandle(ctx, job, body)
	q.note("publish handle")
	return standing, err
}

func (q notedQueue) SetStatus(ctx context.Context, s queue.Status) error {
	q.note("status " + string(s.State))
	return q.Queue.SetStatus(ctx, s)
}

func (q notedQueue) Next(ctx context.Context, kinds ...queue.Kind) (queue.Delivery, error) {
	d, err := q.Queue.Next(ctx, kinds...)
	return notedDelivery{d, q.journal}, err
}

type notedDelivery struct {
	queue.Delivery
	*journal
}

func (d notedDelivery) Done(ctx context.Context) error {
	err := d.Delivery.Done(ctx)
	d.note("done")
	return err
}

// noted wraps the rig's worker.
func (r *rig) noted() *journal {
	j := &journal{}
	r.Worker.Queue = notedQueue{r.queue, j}
	r.Space.Store = notedStore{r.store, j}
	return j
}

// Promises 1, 3 and 4.
func TestOrderOfEffects(t *testing.T) {
	r := newRig(t)
	j := r.noted()
	r.ingest(prose(43))
	order := []struct{ before, after string }{
		{"put manifests", "get manifests"}, // read back
		{"get manifests", "put handles"},
		{"put handles", "publish handle"},
		{"publish handle", "status done"},
		{"status done", "done"},
	}
	for _, o := range order {
		if j.last(o.before) > j.first(t, o.after) || j.last(o.before) < 0 {
			t.Errorf("promises 1, 3, 4: %s came after %s: %v", o.before, o.after, j.notes)
		}
	}
	if j.last("put nodes") > j.first(t, "put manifests") {
		t.Errorf("promise 1: a node came after the manifest: %v", j.notes)
	}
	// Between two nodes lie the blobs of the second, never behind it.
	if j.last("put blobs") > j.last("put nodes") || j.last("put rolling") > j.last("put nodes") {
		t.Errorf("promise 1: blobs came after the last node: %v", j.notes)
	}
	if j.first(t, "put blobs") > j.first(t, "put nodes") {
		t.Errorf("promise 1: a node came before any blob: %v", j.notes)
	}
}

// Promise 2.
func TestLostAnswersAreReadBack(t *testing.T) {
	for _, pattern := range []string{"*/nodes/*", "*/manifests/*", "*/handles/*"} {
		r := newRig(t)
		j := r.noted()
		faulty := cachetest.NewFaulty(r.Space.Store, cachetest.Fault{Op: cachetest.Put, Pattern: pattern, Nth: 1, Action: cachetest.ErrorAfter})
		r.Space.Store = faulty
		got := r.ingest(prose(20))
		if len(faulty.Fired()) != 1 {
			t.Errorf("no answer to a put of %s was lost", pattern)
		}
		if got.Attempt != 1 || j.last("replace nodes") >= 0 || j.last("replace manifests") >= 0 {
			t.Errorf("promise 2: lost answer to %s took attempt %d, effects %v", pattern, got.Attempt, j.notes)
		}
	}
}

// Promise 2: a standing node that differs is an alarm, and stays.
func TestDivergedStateIsAnAlarm(t *testing.T) {
	r := newRig(t)
	r.ingest(prose(16))
	// Another computation of the same key: the toy of another seed under the identity of the first.
	liar := r.another(&enginetest.Toy{Seed: "cosmic ray"})
	liar.Engine = masked{liar.Engine, r.toy}
	var nodes []string
	for _, name := range r.store.Names() {
		if kindOf(name) == "blobs" || kindOf(name) == "keep" {
			if err := r.store.Delete(t.Context(), name); err != nil {
				t.Fatal(err) // so that nothing can be restored
			}
		}
		if kindOf(name) == "nodes" {
			nodes = append(nodes, name)
		}
	}
	first := slices.IndexFunc(nodes, func(name string) bool {
		b, _ := r.store.Bytes(name)
		n, err := cache.DecodeNode(b)
		return err == nil && n.From == 0
	})
	nodes[0] = nodes[first]
	before, _ := r.store.Bytes(nodes[0])
	id := r.submit(r.ingestJob(prose(16), worker.IngestOptions{Again: "2"}))
	d, err := r.queue.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := liar.Handle(t.Context(), d); err == nil || !strings.Contains(err.Error(), "different states") {
		t.Errorf("promise 2: a worker that diverges goes on: %v", err)
	}
	dead := r.dead(id, "diverged")
	n, err := cache.DecodeNode(before)
	if err != nil {
		t.Fatal(err)
	}
	want := queue.Alarm{Of: "node", Key: n.Key.String(), From: n.From, To: n.To, Part: "rows", Stored: cache.Sum(before).String(), Host: "test"}
	events := r.queue.Events(id)
	if len(events) < 2 || events[len(events)-2].Type != queue.EventAlarm || events[len(events)-1].Type != queue.EventFailed {
		t.Fatalf("events %v, want an alarm before the end", r.types(id))
	}
	for _, got := range []*queue.Alarm{dead.Alarm, events[len(events)-2].Alarm, events[len(events)-1].Dead.Alarm} {
		if got == nil || got.Computed == want.Stored || len(got.Computed) != len(want.Stored) {
			t.Fatalf("alarm %+v", got)
		}
		want.Computed = got.Computed
		if *got != want {
			t.Errorf("alarm %+v, want %+v", *got, want)
		}
	}
	if after, _ := r.store.Bytes(nodes[0]); string(after) != string(before) {
		t.Error("promise 2: the standing node was overwritten")
	}
}

// masked is an engine under the identity of another.
type masked struct {
	engine.Engine
	as engine.Engine
}

func (m masked) Identity() (engine.Identity, error) { return m.as.Identity() }

// Promise 3.
func TestNoHandleForAManifestThatDoesNotReadBack(t *testing.T) {
	r := newRig(t)
	r.Space.Store = cachetest.NewFaulty(r.store, cachetest.Fault{Op: cachetest.Get, Pattern: "*/manifests/*", Action: cachetest.FlipByte})
	id := r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
	r.turn(r.Worker)
	dead := r.dead(id, "corrupt")
	if !strings.Contains(dead.Reason, "manifests/") || dead.LastGood != 20 {
		t.Errorf("dead letter %+v does not name the manifest and the last good boundary", dead)
	}
	if n := r.queue.Calls("PublishHandle"); n != 0 {
		t.Errorf("promise 3: %d handles were published", n)
	}
}

// Promise 4.
func TestNotAcknowledgedBeforeTheHandleIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.queue.Fail(queuetest.Rule{Op: "PublishHandle", Nth: 1, Err: fmt.Errorf("no answer"), After: true})
		id := r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
		r.turn(r.Worker)
		if n := r.queue.Calls("Done"); n != 0 || r.status(id).State == queue.Done {
			t.Errorf("promise 4: acknowledged %d times without an accepted handle", n)
		}
		computed := r.toy.Prefilled()
		r.turn(r.Worker) // the handle stood: nothing is computed
		if got := r.receipt(id); got.Tokens.Total != 20 || got.Tokens.Restored != 20 || r.toy.Prefilled() != computed {
			t.Errorf("second attempt counts %+v and computed %d tokens", got.Tokens, r.toy.Prefilled()-computed)
		}
	})
}

// Promise 5.
func TestRepeatsGiveTheSame(t *testing.T) {
	submitted := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var handles []string
	var names [][]string
	var jobs []queue.Job
	for range 2 {
		r := newRig(t)
		job := r.ingestJob(prose(43), worker.IngestOptions{TTL: time.Hour, Submitted: submitted})
		id := r.submit(job)
		r.turn(r.Worker)
		handles = append(handles, r.receipt(id).HandleDigest)
		names = append(names, r.store.Names())
		jobs = append(jobs, job)
	}
	if handles[0] != handles[1] || !slices.Equal(names[0], names[1]) || jobs[0].ID != jobs[1].ID {
		t.Errorf("promise 5: handles %v, jobs %s and %s, stores\n%v\n%v", handles, jobs[0].ID, jobs[1].ID, names[0], names[1])
	}
}

// Promise 5: a redelivery of what is done is acknowledged without work.
func TestDuplicateDelivery(t *testing.T) {
	r := newRig(t)
	id := r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
	r.turn(r.Worker)
	events, computed := len(r.queue.Events(id)), r.toy.Prefilled()
	if !r.queue.Duplicate(id) {
		t.Fatal("job was not delivered again")
	}
	r.turn(r.Worker)
	story := r.types(id)
	if len(story) != events+1 || story[events] != queue.EventDone || r.toy.Prefilled() != computed || r.queue.Pending() != 0 {
		t.Errorf("promise 5: after a duplicate the story is %v, %d tokens were computed, %d jobs are left",
			story, r.toy.Prefilled()-computed, r.queue.Pending())
	}
}

// Promise 6.
func TestLostDeliveryPublishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		block := enginetest.BlockPrefill(3)
		r.toy.BeforePrefill = block.Hook
		id := r.submit(r.ingestJob(prose(43), worker.IngestOptions{}))
		d, err := r.queue.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- r.Handle(t.Context(), d) }()
		<-block.Started
		synctest.Wait() // what was to be told before is told
		r.queue.Expire(id)
		events, names := len(r.queue.Events(id)), r.store.Names()
		if err := <-ended; err != nil { // the chunk ends by its context: nobody releases it
			t.Errorf("a lost delivery ends the worker: %v", err)
		}
		if len(r.queue.Events(id)) != events || !slices.Equal(r.store.Names(), names) || r.queue.Calls("PublishHandle") != 0 {
			t.Error("promise 6: something was published after the delivery was lost")
		}
		if r.queue.Calls("Done")+r.queue.Calls("Retry")+r.queue.Calls("Reject")+r.queue.Calls("Release") != 0 {
			t.Error("promise 6: a lost delivery was settled")
		}
		other := r.another(&enginetest.Toy{})
		r.turn(other)
		got := r.receipt(id)
		if got.Tokens.Restored != 16 || got.Attempt != 2 {
			t.Errorf("the next worker restored %d tokens in attempt %d, want 16 in 2", got.Tokens.Restored, got.Attempt)
		}
		if r.toy.Open() != 0 {
			t.Errorf("%d sequences are open", r.toy.Open())
		}
	})
}

// Promise 6: a delivery lost just before the handle is published.
func TestLostBeforePublishing(t *testing.T) {
	r := newRig(t)
	r.queue.Fail(queuetest.Rule{Op: "Extend", Nth: 1, Err: queue.ErrLost})
	id := r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
	r.turn(r.Worker)
	if n := r.queue.Calls("PublishHandle"); n != 0 || r.status(id).State == queue.Done {
		t.Errorf("promise 6: %d handles were published, job is %s", n, r.status(id).State)
	}
}

// Promise 7.
func TestStateIsTakenAtBoundaries(t *testing.T) {
	for _, maxChunk := range []int{3, 8, 64} {
		r := newRig(t)
		r.toy.MaxChunk = maxChunk
		job := r.ingestJob(prose(43), worker.IngestOptions{})
		id := r.submit(job)
		r.turn(r.Worker)
		digest, err := cache.ParseDigest(r.receipt(id).HandleDigest)
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Space.Handle(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Space.Manifest(t.Context(), h.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		var ends []int
		for _, c := range m.Chunks {
			ends = append(ends, c.To)
		}
		if !slices.Equal(ends, []int{8, 16, 24, 32, 40, 43}) || h.Tokens != 43 || m.Tokens != 43 {
			t.Errorf("promise 7: chunks of %d: cells end at %v, handle of %d tokens", maxChunk, ends, h.Tokens)
		}
	}
	r := newRig(t)
	job := r.ingestJob(prose(43), worker.IngestOptions{})
	job.Ingest.Tokens = 44 // the request is wrong about its document
	id := r.submit(job)
	r.turn(r.Worker)
	r.dead(id, "bad-input")
}
