package worker_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"lector/cache"
	"lector/queue"
)

// process is what a seed has in store for one process.
type process struct {
	*simulation
	name   string
	lock   sync.Mutex
	random *rand.Rand
	gone   bool
}

var errFault = errors.New("a fault of the simulation")

// look fails once the process is dead.
func (p *process) look() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.gone {
		return errDead
	}
	return nil
}

// effect carries one out, or what the seed makes of it.
func (p *process) effect(ctx context.Context, do func() error) error {
	if err := p.look(); err != nil {
		return err
	}
	p.lock.Lock()
	draw, stall := p.random.IntN(200), time.Duration(p.random.Int64N(int64(simStall)))
	p.lock.Unlock()
	switch {
	case draw < 6 && p.take(): // before or after, with or without the process
		if draw&1 != 0 {
			if err := do(); err != nil {
				return err
			}
		}
		if draw >= 4 {
			p.lock.Lock()
			p.gone = true
			p.lock.Unlock()
			return errDead
		}
		return errFault
	case draw == 6 && p.take():
		select {
		case <-time.After(stall):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := p.look(); err != nil {
		return err
	}
	return do()
}

type chaosStore struct {
	cache.Store
	p *process
}

func (c chaosStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	return c.p.effect(ctx, func() error { return c.Store.Put(ctx, name, body, size, how) })
}

func (c chaosStore) Get(ctx context.Context, name string, off, n int64) (r io.ReadCloser, err error) {
	err = c.p.effect(ctx, func() (err error) { r, err = c.Store.Get(ctx, name, off, n); return err })
	if err != nil && r != nil {
		r.Close()
		r = nil
	}
	return r, err
}

func (c chaosStore) Stat(ctx context.Context, name string) (o cache.Object, err error) {
	err = c.p.effect(ctx, func() (err error) { o, err = c.Store.Stat(ctx, name); return err })
	return o, err
}

func (c chaosStore) Delete(ctx context.Context, name string) error {
	return c.p.effect(ctx, func() error { return c.Store.Delete(ctx, name) })
}

func (c chaosStore) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	if err := c.p.effect(ctx, func() error { return nil }); err != nil {
		return func(yield func(cache.Object, error) bool) { yield(cache.Object{}, err) }
	}
	return c.Store.List(ctx, prefix)
}

type chaosQueue struct {
	queue.Queue
	p *process
}

func (q chaosQueue) Next(ctx context.Context, kinds ...queue.Kind) (queue.Delivery, error) {
	if err := q.p.look(); err != nil {
		return nil, err
	}
	d, err := q.Queue.Next(ctx, kinds...)
	if err != nil {
		return nil, err
	}
	q.p.mark(d.Job().ID, false)
	return chaosDelivery{d, q.p}, nil
}

// mark notes whether this process was told that a job is not its own any more.
func (p *process) mark(job string, lost bool) {
	p.simulation.mu.Lock()
	defer p.simulation.mu.Unlock()
	p.lost[p.name+" "+job] = lost
}

// mine fails the test where an attempt that knows that it is lost still says something.
func (p *process) mine(job, what string) {
	p.simulation.mu.Lock()
	defer p.simulation.mu.Unlock()
	if p.lost[p.name+" "+job] {
		p.Errorf("promise 6: process %s lost job %s and still does %s", p.name, job, what)
	}
}

func (q chaosQueue) Status(ctx context.Context, id string) (st queue.Status, err error) {
	err = q.p.effect(ctx, func() (err error) { st, err = q.Queue.Status(ctx, id); return err })
	return st, err
}

func (q chaosQueue) SetStatus(ctx context.Context, st queue.Status) error {
	return q.p.effect(ctx, func() error { return q.Queue.SetStatus(ctx, st) })
}

func (q chaosQueue) Publish(ctx context.Context, e queue.Event) error {
	return q.p.effect(ctx, func() error { return q.Queue.Publish(ctx, e) })
}

func (q chaosQueue) PublishHandle(ctx context.Context, job string, body []byte) (standing []byte, err error) {
	err = q.p.effect(ctx, func() (err error) {
		q.p.mine(job, "publish its handle")
		h, err := cache.DecodeHandle(body)
		if err == nil {
			err = q.p.verify(h.Manifest)
		}
		if err != nil {
			q.p.Errorf("promise 3: the handle of job %s is published, and %v", job, err)
		}
		standing, err = q.Queue.PublishHandle(ctx, job, body)
		return err
	})
	return standing, err
}

func (q chaosQueue) Handle(ctx context.Context, job string) (body []byte, err error) {
	err = q.p.effect(ctx, func() (err error) { body, err = q.Queue.Handle(ctx, job); return err })
	return body, err
}

func (q chaosQueue) Acquire(ctx context.Context, name string, ttl time.Duration) (l queue.Lease, err error) {
	err = q.p.effect(ctx, func() (err error) { l, err = q.Queue.Acquire(ctx, name, ttl); return err })
	return l, err
}

type chaosDelivery struct {
	queue.Delivery
	p *process
}

func (d chaosDelivery) do(ctx context.Context, f func() error) error {
	err := d.p.effect(ctx, f)
	if errors.Is(err, queue.ErrLost) {
		d.p.mark(d.Job().ID, true)
	}
	return err
}

func (d chaosDelivery) Extend(ctx context.Context) error {
	return d.do(ctx, func() error { return d.Delivery.Extend(ctx) })
}

func (d chaosDelivery) Done(ctx context.Context) error {
	return d.do(ctx, func() error {
		st, err := d.p.queue.Status(ctx, d.Job().ID)
		if err == nil && !st.State.Final() {
			d.p.Errorf("promise 4: job %s is acknowledged as %s", d.Job().ID, st.State)
		}
		if _, err := d.p.queue.Handle(ctx, d.Job().ID); d.Job().Kind == queue.Ingest && err != nil {
			d.p.Errorf("promise 4: job %s is acknowledged, and %v", d.Job().ID, err)
		}
		return d.Delivery.Done(ctx)
	})
}

func (d chaosDelivery) Retry(ctx context.Context, after time.Duration) error {
	return d.do(ctx, func() error { return d.Delivery.Retry(ctx, after) })
}

func (d chaosDelivery) Release(ctx context.Context) error {
	return d.do(ctx, func() error { return d.Delivery.Release(ctx) })
}

func (d chaosDelivery) Reject(ctx context.Context, dead queue.Dead) error {
	return d.do(ctx, func() error { return d.Delivery.Reject(ctx, dead) })
}
