package jetstream_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"lector/queue"
	"lector/queue/queuetest"
	"pgregory.net/rapid"
)

// pair runs the same calls on the memory queue and on JetStream. The jobs of one run have ids of their own, and there is
// one of each kind, so that which one Next hands out is no matter of order.
type pair struct {
	t      *rapid.T
	queues []queue.Queue
	ids    map[queue.Kind]string
	held   map[queue.Kind][]queue.Delivery // the last delivery of the kind, by queue
	due    map[queue.Kind]bool
}

// both checks that a call ends the same on both queues: with the same error of the contract, or with none.
func (p *pair) both(what string, call func(i int, q queue.Queue) error) error {
	var errs []error
	for i, q := range p.queues {
		err := call(i, q)
		if err != nil && !errors.Is(err, queue.ErrLost) && !errors.Is(err, queue.ErrUnknown) {
			p.t.Fatalf("%s: %v", what, err)
		}
		errs = append(errs, err)
	}
	if errors.Is(errs[0], queue.ErrLost) != errors.Is(errs[1], queue.ErrLost) || (errs[0] == nil) != (errs[1] == nil) {
		p.t.Fatalf("%s: memory says %v, JetStream says %v", what, errs[0], errs[1])
	}
	return errs[0]
}

func (p *pair) order(kind queue.Kind) queue.Job {
	j := job(p.ids[kind])
	if kind == queue.Resume {
		j.Kind, j.Ingest, j.Resume = kind, nil, &queue.ResumeOrder{Handle: "h", MaxTokens: 1}
	}
	return j
}

func (p *pair) settle(kind queue.Kind, what string, call func(queue.Delivery) error, due bool) {
	if p.held[kind] == nil {
		return
	}
	err := p.both(what, func(i int, _ queue.Queue) error { return call(p.held[kind][i]) })
	if err == nil {
		p.due[kind] = due
	}
}

func (p *pair) compare() {
	for _, id := range p.ids {
		a, errA := p.queues[0].Status(p.t.Context(), id)
		b, errB := p.queues[1].Status(p.t.Context(), id)
		sameDead := (a.Dead == nil) == (b.Dead == nil) && (a.Dead == nil || *a.Dead == *b.Dead)
		if (errA == nil) != (errB == nil) || a.State != b.State || a.Attempts != b.Attempts || string(a.Result) != string(b.Result) || !sameDead {
			p.t.Fatalf("job %s in memory: %+v (%v), in JetStream: %+v (%v)", id, a, errA, b, errB)
		}
	}
}

// The memory queue is what workers are tested with: any story told to both must be the same story.
func TestSameAsMemory(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.AckWait = time.Hour // nothing expires by itself
	_, js := serve(t, cfg)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		mem := queuetest.NewMemory(queuetest.NewManual(time.Unix(1_700_000_000, 0)))
		p := &pair{
			t: t, queues: []queue.Queue{mem, js},
			ids:  map[queue.Kind]string{queue.Ingest: fmt.Sprintf("i%d", runs), queue.Resume: fmt.Sprintf("r%d", runs)},
			held: map[queue.Kind][]queue.Delivery{}, due: map[queue.Kind]bool{},
		}
		defer p.leaveNothing()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			kind := rapid.SampledFrom([]queue.Kind{queue.Ingest, queue.Resume}).Draw(t, "kind")
			p.step(kind, rapid.IntRange(0, 8).Draw(t, "step"))
			p.compare()
		}
	})
}

func (p *pair) step(kind queue.Kind, n int) {
	ctx := p.t.Context()
	states := []queue.State{queue.Running, queue.Done, queue.Failed, queue.Cancelled}
	switch n {
	case 0, 1:
		err := p.both("Submit", func(_ int, q queue.Queue) error { _, err := q.Submit(ctx, p.order(kind)); return err })
		p.due[kind] = err == nil && p.queues[0].(*queuetest.Memory).Due(p.ids[kind])
	case 2, 3:
		if !p.due[kind] {
			return
		}
		held := make([]queue.Delivery, 2)
		err := p.both("Next", func(i int, q queue.Queue) (err error) { held[i], err = q.Next(ctx, kind); return err })
		if err == nil {
			if held[0].Attempt() != held[1].Attempt() || held[0].Job().ID != held[1].Job().ID {
				p.t.Fatalf("memory delivers attempt %d of %s, JetStream %d of %s", held[0].Attempt(), held[0].Job().ID, held[1].Attempt(), held[1].Job().ID)
			}
			p.held[kind], p.due[kind] = held, false
		}
	case 4:
		p.settle(kind, "Done", func(d queue.Delivery) error { return d.Done(ctx) }, false)
	case 5:
		p.settle(kind, "Retry", func(d queue.Delivery) error { return d.Retry(ctx, 0) }, true)
	case 6:
		p.settle(kind, "Release", func(d queue.Delivery) error { return d.Release(ctx) }, true)
	case 7:
		p.settle(kind, "Reject", func(d queue.Delivery) error { return d.Reject(ctx, queue.Dead{Class: "x"}) }, false)
	case 8:
		s := queue.Status{Job: p.order(kind), State: rapid.SampledFrom(states).Draw(p.t, "state"), Attempts: rapid.IntRange(0, 2).Draw(p.t, "attempts")}
		_ = p.both("SetStatus", func(_ int, q queue.Queue) error { return q.SetStatus(ctx, s) })
	}
}

// leaveNothing takes this run's jobs out of the shared server.
func (p *pair) leaveNothing() {
	for kind := range p.ids {
		if p.held[kind] != nil {
			_ = p.held[kind][1].Done(p.t.Context()) // if it was not settled
		}
		if p.due[kind] {
			if d, err := p.queues[1].Next(p.t.Context(), kind); err == nil {
				_ = d.Done(p.t.Context())
			}
		}
	}
}
