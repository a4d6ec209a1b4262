package fleet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"lector/cache/cachetest"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
)

// hostClock is the clock of a host; it can jump.
type hostClock struct{ ahead atomic.Int64 }

func (c *hostClock) now() time.Time                    { return time.Now().Round(0).Add(time.Duration(c.ahead.Load())) }
func (c *hostClock) jump(by time.Duration)             { c.ahead.Add(int64(by)) }
func (c *hostClock) start(by time.Duration) *hostClock { c.jump(by); return c }

// on opens the fleet's queue on a host with that clock.
func (f *fleet) on(c *hostClock) *jetstream.Queue {
	f.Helper()
	q, err := jetstream.Open(f.Context(), jetstream.Config{
		URL: f.url, Create: true, Model: f.id.Model.String(), AckWait: f.ackWait, Poll: 20 * time.Millisecond, Timeout: 20 * time.Second, Clock: c.now,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = q.Close() })
	return q
}

// While two workers read documents that begin alike, the clock of one jumps hours ahead and that of the other hours back,
// again and again. No lease ends early or is held on to, no chunk is computed twice, every job is done by its first
// attempt, and no deadline comes before its time.
func TestClockJumps(t *testing.T) {
	f := newFleet(t)
	const grid, cells = enginetest.ToyGrid, 6
	clocks := []*hostClock{new(hostClock).start(5 * time.Hour), new(hostClock).start(-5 * time.Hour)}
	var toys []*enginetest.Toy
	for i, c := range clocks {
		by := time.Duration(1-2*i) * 9 * time.Hour
		toys = append(toys, &enginetest.Toy{BeforePrefill: func(_ context.Context, call int, _ []engine.Token) error {
			if call%2 == 1 {
				by = -by
			}
			c.jump(by)
			time.Sleep(5 * time.Millisecond) // so that the two are at it together
			return nil
		}})
	}
	client := f.queue(f.url)
	shared := prose(cells * grid)
	var ids []string
	for _, end := range []int32{5, 6, 7, 8} {
		document := append(append([]int32{}, shared...), end)
		d, err := worker.StoreDocument(t.Context(), f.space, document)
		if err != nil {
			t.Fatal(err)
		}
		o := worker.IngestOptions{Tokens: len(document), Submitted: time.Now(), Deadline: time.Now().Add(time.Hour)}
		s, err := client.Submit(t.Context(), worker.NewIngest(f.id, d, o))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.Job.ID)
	}
	for i, c := range clocks {
		q := f.on(c)
		for _, id := range ids {
			if s, err := q.Status(t.Context(), id); err != nil || s.State == queue.Expired {
				t.Fatalf("on a host whose clock is wrong the job is %s: %v", s.State, err)
			}
		}
		if off := time.Until(q.Now()); off.Abs() > time.Minute {
			t.Errorf("the queue's clock is off by %v", off)
		}
		f.start(&worker.Worker{Queue: q, Engine: toys[i], Clock: q.Now})
	}
	computed := 0
	for _, id := range ids {
		receipt, story := f.done(client, id)
		if receipt.Attempt != 1 {
			t.Errorf("job %s took attempt %d: %+v", id, receipt.Attempt, story)
		}
	}
	for _, toy := range toys {
		computed += toy.Prefills()
	}
	if computed != cells+len(ids) {
		t.Errorf("%d chunks were computed, where %d differ", computed, cells+len(ids))
	}
}

// A lease is nobody else's while it is valid, and somebody else's when it is not, whatever the clocks of both say.
func TestLeasesUnderWrongClocks(t *testing.T) {
	f := newFleet(t)
	f.space.Store = cachetest.NewMemory()
	ahead, behind := f.on(new(hostClock).start(7*time.Hour)), f.on(new(hostClock).start(-7*time.Hour))
	for name, pair := range map[string][2]*jetstream.Queue{"ahead": {behind, ahead}, "behind": {ahead, behind}} {
		held, err := pair[0].Acquire(t.Context(), name, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := pair[1].Acquire(t.Context(), name, time.Hour); err == nil {
			t.Errorf("%s: a valid lease is taken: %v", name, l)
		}
		if err := held.Renew(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := pair[0].Acquire(t.Context(), name+"-short", 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if _, err = pair[1].Acquire(t.Context(), name+"-short", time.Hour); err == nil || time.Now().After(until) {
				break
			}
		}
		if err != nil {
			t.Errorf("%s: a lease that is over is not taken: %v", name, err)
		}
	}
}
