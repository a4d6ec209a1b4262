package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// spooled gives the rig's worker a spool, and a store of its own kind to put through.
func (r *rig) spooled(store cache.Store) *cachetest.Spool {
	spool := cachetest.NewSpool(store, 1<<20)
	r.Space.Store, r.Space.Spool = store, spool
	return spool
}

// gate is a store whose puts of blobs and rolling state wait, from the n-th on (from 1), until it opens or their
// context ends.
type gate struct {
	cache.Store
	nth  int64
	puts atomic.Int64
	open chan struct{}
}

func newGate(store cache.Store, nth int64) *gate {
	return &gate{Store: store, nth: nth, open: make(chan struct{})}
}

func (g *gate) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	if kind := kindOf(name); (kind == "blobs" || kind == "rolling") && g.puts.Add(1) >= g.nth {
		select {
		case <-g.open:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return g.Store.Put(ctx, name, body, size, how)
}

// empty says that a spool keeps nothing.
func empty(t *testing.T, s *cachetest.Spool) {
	t.Helper()
	if now, _ := s.Bytes(); now != 0 || s.Open() != 0 {
		t.Errorf("the spool keeps %d bytes in %d batches", now, s.Open())
	}
}

// While the store takes a cell the next one is computed; the one after that is not begun before the store has it, and
// the receipt says how long that held reading up. A spool holds one cell of a document at a time.
func TestUploadBehindCompute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		slow := newGate(r.store, 1)
		spool := r.spooled(slow)
		var begun atomic.Int64
		r.toy.BeforePrefill = func(context.Context, int, []engine.Token) error { begun.Add(1); return nil }
		id := r.submit(r.ingestJob(prose(4*enginetest.ToyGrid+1), worker.IngestOptions{}))
		done := make(chan struct{})
		go func() {
			r.background(r.Worker)
			close(done)
		}()
		time.Sleep(time.Minute)
		if n := begun.Load(); n != 2 {
			t.Errorf("%d cells were begun while the store had none of them, not 2", n)
		}
		for _, name := range r.store.Names() {
			if kindOf(name) == "nodes" {
				t.Errorf("promise 1: %s is there before its blobs", name)
			}
		}
		close(slow.open)
		<-done
		got := r.receipt(id)
		if s := got.Seconds; s.Held < 59 || s.Held > 61 || s.Store < s.Held || s.Behind < s.Held {
			t.Errorf("the receipt says %+v", s)
		}
		_, most := spool.Bytes()
		toy := r.toy.Info()
		if limit := int64(toy.BytesPerToken*enginetest.ToyGrid + toy.FixedBytes); most > limit {
			t.Errorf("the spool held %d bytes, one cell has %d", most, limit)
		}
		empty(t, spool)
		plain := newRig(t)
		if want := plain.ingest(prose(4*enginetest.ToyGrid + 1)); want.HandleDigest != got.HandleDigest || want.WrittenBytes != got.WrittenBytes {
			t.Errorf("with a spool %+v, without %+v", got, want)
		}
	})
}

// A store that is fast enough never holds reading up.
func TestFastStoreHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		spool := r.spooled(slowly{r.store, time.Second})
		r.toy.BeforePrefill = func(context.Context, int, []engine.Token) error { time.Sleep(time.Minute); return nil }
		got := r.ingest(prose(6 * enginetest.ToyGrid))
		if s := got.Seconds; s.Held != 0 || s.Behind < 5 || s.Prefill != 6*60 {
			t.Errorf("the receipt says %+v", s)
		}
		empty(t, spool)
	})
}

// slowly takes its time over every put.
type slowly struct {
	cache.Store
	each time.Duration
}

func (s slowly) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	time.Sleep(s.each)
	return s.Store.Put(ctx, name, body, size, how)
}

// A delivery that is lost while the store hangs ends the work; nothing is published and nothing stays in the spool.
func TestLostWhileStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		spool := r.spooled(newGate(r.store, 3))
		id := r.submit(r.ingestJob(prose(5*enginetest.ToyGrid), worker.IngestOptions{}))
		r.queue.Fail(queuetest.Rule{Op: "Extend", Nth: 4, Err: queue.ErrLost})
		r.turn(r.Worker)
		if st := r.status(id); st.State != queue.Running {
			t.Errorf("job is %s", st.State)
		}
		for _, name := range r.store.Names() {
			if kind := kindOf(name); kind == "handles" || kind == "manifests" {
				t.Errorf("promise 6: %s was stored", name)
			}
		}
		if n := r.toy.Open(); n != 0 {
			t.Errorf("%d sequences are open", n)
		}
		empty(t, spool)
	})
}

// A worker that drains stores what it has finished before it gives the job back.
func TestDrainStoresWhatIsSpooled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		slow := newGate(r.store, 1)
		spool := r.spooled(slow)
		block := enginetest.BlockPrefill(2)
		r.toy.BeforePrefill = block.Hook
		tokens := prose(5 * enginetest.ToyGrid)
		r.submit(r.ingestJob(tokens, worker.IngestOptions{}))
		ctx, drain := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Worker.Run(ctx) }()
		<-block.Started
		drain()
		close(block.Release)
		synctest.Wait()
		close(slow.open)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		keys := cache.Keys(r.identity().Producer, tokens, cache.Boundaries(len(tokens), enginetest.ToyGrid))
		n, _, err := r.Space.Deepest(t.Context(), "", keys)
		if err != nil || n != 2 || r.toy.Prefilled() != 2*enginetest.ToyGrid {
			t.Errorf("%d cells are stored (%v) of %d tokens computed", n, err, r.toy.Prefilled())
		}
		empty(t, spool)
	})
}

// A chunk that will never fit is an error that says so, and nothing is left.
func TestChunkBeyondTheSpool(t *testing.T) {
	r := newRig(t)
	r.Space.Spool = cachetest.NewSpool(r.store, 64)
	r.Config.Attempts = 1
	id := r.submit(r.ingestJob(prose(5*enginetest.ToyGrid), worker.IngestOptions{}))
	r.turn(r.Worker)
	if dead := r.dead(id, "attempts"); !strings.Contains(dead.Reason, cache.ErrRoom.Error()) {
		t.Errorf("the reason is %q", dead.Reason)
	}
}

// Another computation of the same key that differs is an alarm behind compute, too.
func TestDivergedBehindCompute(t *testing.T) {
	r := newRig(t)
	r.ingest(prose(3 * enginetest.ToyGrid))
	for _, name := range r.store.Names() { // only a node without its blobs is computed again
		if kind := kindOf(name); kind == "blobs" {
			if err := r.store.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	spool := r.spooled(r.store)
	r.toy.BeforePrefill = func(context.Context, int, []engine.Token) error { return nil }
	other := r.another(&enginetest.Toy{Seed: r.toy.Seed})
	other.Space.Spool = spool
	other.Engine = lying{other.Engine}
	r.submit(r.ingestJob(prose(3*enginetest.ToyGrid), worker.IngestOptions{Again: "x"}))
	d, err := r.queue.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Handle(t.Context(), d); !errors.Is(err, cache.ErrDiverged) {
		t.Errorf("Handle: %v, want the alarm", err)
	}
	empty(t, spool)
}

// lying is an engine whose states are off by one bit.
type lying struct{ engine.Engine }

func (l lying) NewSequence(capacity int) (engine.Sequence, error) {
	seq, err := l.Engine.NewSequence(capacity)
	return lyingSequence{seq}, err
}

type lyingSequence struct{ engine.Sequence }

func (l lyingSequence) Regions() ([]engine.Region, error) {
	regions, err := l.Sequence.Regions()
	for i := range regions {
		if regions[i].Kind == engine.Fixed {
			regions[i].Data[0] ^= 1
		}
	}
	return regions, err
}

// Law: whatever fails, once or for a while, before or after it took effect, in the spool or in the store, the job ends
// with the handle that it has without failures, and the spool is empty.
func TestFaultsBehindCompute(t *testing.T) {
	const tokens = 5*enginetest.ToyGrid + 2
	want := newRig(t).ingest(prose(tokens)).HandleDigest
	rapid.Check(t, func(rt *rapid.T) {
		faults := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) cachetest.Fault {
			return cachetest.Fault{
				Op:      rapid.SampledFrom([]cachetest.Op{cachetest.Put, cachetest.Get, cachetest.Stat, cachetest.List, cachetest.Delete}).Draw(rt, "op"),
				Pattern: rapid.SampledFrom([]string{"", "*/blobs/*", "*/rolling/*/*", "*/nodes/*", "*/keep/*", "*/manifests/*", "*/handles/*"}).Draw(rt, "name"),
				Nth:     rapid.IntRange(1, 8).Draw(rt, "nth"),
				Action:  rapid.SampledFrom([]cachetest.Action{cachetest.ErrorBefore, cachetest.ErrorAfter}).Draw(rt, "action"),
			}
		}), 1, 4).Draw(rt, "faults")
		broken := rapid.IntRange(0, 12).Draw(rt, "the spool fails at")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			faulty := cachetest.NewFaulty(r.store, faults...)
			spool := r.spooled(faulty)
			var adds atomic.Int64
			spool.BeforeAdd = func(context.Context, int64) error {
				if adds.Add(1) == int64(broken) {
					return fmt.Errorf("the disk of the spool: %w", cachetest.ErrInjected)
				}
				return nil
			}
			r.Config.Attempts = 20
			id := r.submit(r.ingestJob(prose(tokens), worker.IngestOptions{}))
			for r.queue.Pending() > 0 {
				r.turn(r.Worker)
			}
			if got := r.receipt(id); got.HandleDigest != want {
				t.Errorf("%v, spool fails at %d: handle %s, want %s", faults, broken, got.HandleDigest, want)
			}
			empty(t, spool)
			if n := r.toy.Open(); n != 0 {
				t.Errorf("%d sequences are open", n)
			}
		})
	})
}

// The text of a resume that keeps its state is told to its end while the store has not taken the cell before; the job ends
// when it has all, and the result says how long that took.
func TestKeepBehindDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const n = 2*enginetest.ToyGrid - 4
		from := r.ingest(prose(n))
		r.toy.Stops = nil
		order := queue.ResumeOrder{MaxTokens: enginetest.ToyGrid, Keep: true} // across one boundary
		slow := newGate(r.store, 1)
		spool := r.spooled(slow)
		id := r.submit(r.resumeJob(from.HandleDigest, order))
		done := make(chan struct{})
		go func() {
			r.background(r.Worker)
			close(done)
		}()
		time.Sleep(time.Minute)
		finish := ""
		for _, e := range r.queue.Events(id) {
			finish += e.Finish
		}
		if finish != worker.FinishLength || r.status(id).State != queue.Running {
			t.Errorf("the text ended by %q while the store had nothing of it, the job is %s", finish, r.status(id).State)
		}
		if _, err := r.queue.Handle(t.Context(), id); !errors.Is(err, queue.ErrUnknown) {
			t.Errorf("promise 3: a handle shows: %v", err)
		}
		close(slow.open)
		<-done
		var got worker.Result
		r.result(id, &got)
		if s := got.Timings; s.Held < 59 || s.Held > 61 || s.Store < s.Held || s.Behind < s.Held || s.Decode > 1 || s.Other > 1 {
			t.Errorf("the result says %+v", s)
		}
		empty(t, spool)
		plain := newRig(t)
		plain.toy.Stops = nil
		if want := plain.resume(plain.ingest(prose(n)).HandleDigest, order); want.HandleDigest != got.HandleDigest || want.Text != got.Text {
			t.Errorf("with a spool %+v, without %+v", got, want)
		}
	})
}

// A store that is fast enough never holds a text up, and the parts of the result add up.
func TestFastStoreHoldsNoTextUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		spool := r.spooled(slowly{r.store, time.Second})
		r.toy.BeforeDecode = func(context.Context, int, []engine.Token) error { time.Sleep(time.Minute); return nil }
		r.toy.BeforePrefill = r.toy.BeforeDecode
		got := r.resume(from.HandleDigest, queue.ResumeOrder{Tokens: prose(30), MaxTokens: 20, Keep: true})
		s := got.Timings
		if s.Held != 0 || s.Behind < 5 || s.Store < 1 || s.Store > 10 || s.Decode < 60 || s.Decode != float64(int(s.Decode)/60*60) {
			t.Errorf("the result says %+v", s)
		}
		if sum := s.Restore + s.Reread + s.Prefill + s.Decode + s.Store + s.Other; sum-s.Total > 1e-6 || s.Total-sum > 1e-6 {
			t.Errorf("the parts add up to %v of %v", sum, s.Total)
		}
		empty(t, spool)
	})
}

// A delivery that is lost while the store hangs ends a text, too; nothing is published and nothing stays in the spool.
func TestTextLostWhileStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		spool := r.spooled(newGate(r.store, 1))
		id := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{Tokens: prose(30), MaxTokens: 20, Keep: true}))
		r.queue.Fail(queuetest.Rule{Op: "Extend", Nth: 3, Err: queue.ErrLost})
		r.turn(r.Worker)
		if st := r.status(id); st.State != queue.Running {
			t.Errorf("job is %s", st.State)
		}
		if _, err := r.queue.Handle(t.Context(), id); !errors.Is(err, queue.ErrUnknown) {
			t.Errorf("promise 6: a handle shows: %v", err)
		}
		if n := r.toy.Open(); n != 0 {
			t.Errorf("%d sequences are open", n)
		}
		empty(t, spool)
	})
}

// Law: whatever fails, in the spool or in the store, a resume that keeps its state ends with the handle and the text that it
// has without failures, from a handle with its state and from one without.
func TestFaultsBehindDecode(t *testing.T) {
	order := queue.ResumeOrder{Text: "and then", MaxTokens: 20, Drafts: 2, Keep: true}
	plain := newRig(t)
	want := plain.resume(plain.ingest(prose(21)).HandleDigest, order)
	rapid.Check(t, func(rt *rapid.T) {
		faults := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) cachetest.Fault {
			return cachetest.Fault{
				Op:      rapid.SampledFrom([]cachetest.Op{cachetest.Put, cachetest.Get, cachetest.Stat, cachetest.List, cachetest.Delete}).Draw(rt, "op"),
				Pattern: rapid.SampledFrom([]string{"", "*/blobs/*", "*/rolling/*/*", "*/nodes/*", "*/keep/*", "*/manifests/*", "*/handles/*", "*/results/*"}).Draw(rt, "name"),
				Nth:     rapid.IntRange(1, 8).Draw(rt, "nth"),
				Action:  rapid.SampledFrom([]cachetest.Action{cachetest.ErrorBefore, cachetest.ErrorAfter}).Draw(rt, "action"),
			}
		}), 1, 4).Draw(rt, "faults")
		broken := rapid.IntRange(0, 12).Draw(rt, "the spool fails at")
		alone := rapid.Bool().Draw(rt, "ids alone")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			o := worker.IngestOptions{}
			if alone {
				o = none()
			}
			from := r.submit(r.ingestJob(prose(21), o))
			r.turn(r.Worker)
			spool := r.spooled(cachetest.NewFaulty(r.store, faults...))
			var adds atomic.Int64
			spool.BeforeAdd = func(context.Context, int64) error {
				if adds.Add(1) == int64(broken) {
					return fmt.Errorf("the disk of the spool: %w", cachetest.ErrInjected)
				}
				return nil
			}
			r.Config.Attempts = 20
			id := r.submit(r.resumeJob(r.receipt(from).HandleDigest, order))
			for r.queue.Pending() > 0 {
				r.turn(r.Worker)
			}
			var got worker.Result
			r.result(id, &got)
			if got.HandleDigest != want.HandleDigest || got.Text != want.Text {
				t.Errorf("%v, spool fails at %d: handle %s of %q, want %s of %q", faults, broken, got.Handle, got.Text, want.Handle, want.Text)
			}
			empty(t, spool)
			if n := r.toy.Open(); n != 0 {
				t.Errorf("%d sequences are open", n)
			}
		})
	})
}
