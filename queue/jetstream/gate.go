package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"lector/queue"
)

// pauseKey is where the bucket of jobs keeps the pause that stands. No job can have it as its id.
const pauseKey = "queue.pause"

// Pause keeps every Next on this server from handing out jobs. A Next that is looking for one just now may still get it.
func (q *Queue) Pause(ctx context.Context, p queue.Pause) error {
	b, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode pause: %w", err)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	if _, err := q.jobs.Put(call, pauseKey, b); err != nil {
		return q.fail(ctx, err, "pause the queue")
	}
	return nil
}

// Unpause lets Next go on within Config.Poll.
func (q *Queue) Unpause(ctx context.Context) error {
	call, cancel := q.call(ctx)
	defer cancel()
	if err := q.jobs.Purge(call, pauseKey); err != nil {
		return q.fail(ctx, err, "unpause the queue")
	}
	return nil
}

// Paused returns the pause that stands, or nil.
func (q *Queue) Paused(ctx context.Context) (*queue.Pause, error) {
	var p *queue.Pause
	if _, err := q.setting(ctx, pauseKey, "the pause", &p); err != nil {
		return nil, err
	}
	return p, nil
}

// gate is the answer to whether the queue is paused, asked for while one look for a job goes on.
type gate struct {
	q      *Queue
	ctx    context.Context
	cancel context.CancelFunc
	answer chan error // nil: the queue is open

	asked, said bool
	err         error
}

var errPaused = errors.New("queue is paused")

// askGate begins to ask. Of a queue that was paused it waits for the answer, so that no message is taken and given back
// at every look; it returns nil where the pause stands.
func (q *Queue) askGate(ctx context.Context) (*gate, error) {
	g := &gate{q: q, answer: make(chan error, 1)}
	g.ctx, g.cancel = context.WithCancel(ctx)
	q.mu.Lock()
	stopped := q.stopped
	q.mu.Unlock()
	if !q.nc.IsConnected() { // nothing is taken then
		return g, nil
	}
	g.asked = true
	q.background(g.ask)
	if stopped {
		if open, err := g.open(); !open {
			g.cancel()
			return nil, err
		}
	}
	return g, nil
}

func (g *gate) ask() {
	p, err := g.q.Paused(g.ctx)
	if p != nil {
		err = errPaused
	}
	g.answer <- err
}

// open waits for the answer. The error is of an answer that did not come.
func (g *gate) open() (bool, error) {
	if !g.asked { // the connection has come since
		g.asked = true
		g.ask()
	}
	if !g.said {
		select {
		case g.err = <-g.answer:
		case <-g.ctx.Done():
			g.err = g.q.fail(g.ctx, g.ctx.Err(), "read whether the queue is paused")
		case <-g.q.life.Done():
			g.err = g.q.fail(g.ctx, queue.ErrClosed, "read whether the queue is paused")
		}
		g.said = true
		g.q.mu.Lock()
		g.q.stopped = errors.Is(g.err, errPaused)
		g.q.mu.Unlock()
	}
	if errors.Is(g.err, errPaused) {
		return false, nil
	}
	return g.err == nil, g.err
}
