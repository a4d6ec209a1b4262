package worker

import (
	"context"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"lector/queue"
)

// eventVersion is the wire version of the events that are told.
const eventVersion = 1

// tell appends an event to the job's story, after those that are on their way. Once the delivery is lost it publishes
// nothing (promise 6).
func (a *attempt) tell(ctx context.Context, e queue.Event) error {
	if err := a.told(); err != nil {
		return err
	}
	return a.append(ctx, a.stamped(e))
}

// stamped completes an event.
func (a *attempt) stamped(e queue.Event) queue.Event {
	e.Version, e.Job, e.Attempt, e.At = eventVersion, a.job.ID, a.delivery.Attempt(), a.now().UTC()
	return e
}

func (a *attempt) append(ctx context.Context, e queue.Event) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("tell %s of job %s: %w", e.Type, a.job.ID, err)
	}
	if err := a.Queue.Publish(ctx, e); err != nil {
		return fmt.Errorf("tell %s of job %s: %w", e.Type, a.job.ID, err)
	}
	a.say(levelOf(e.Type), string(e.Type), zap.Int("tokens", e.Tokens), zap.Int("total", e.Total), zap.Int("ids", len(e.IDs)))
	return nil
}

// maxUntold is how many events may be on their way: a queue that is slower than the work holds it up.
const maxUntold = 64

// telling is the events that are told beside the work, in their order.
type telling struct {
	mu    sync.Mutex
	queue []untold
	idle  chan struct{} // closed when none is on its way; nil where none was
	err   error         // of one; those behind it are not told
}

type untold struct {
	ctx   context.Context
	event queue.Event
}

// tellSoon is tell for an event that no promise waits for: the work goes on meanwhile. What fails is returned by a
// later tell, tellSoon or told.
func (a *attempt) tellSoon(ctx context.Context, e queue.Event) error {
	t := &a.telling
	t.mu.Lock()
	wait := t.err != nil || len(t.queue) >= maxUntold
	t.mu.Unlock()
	if wait {
		if err := a.told(); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, untold{ctx, a.stamped(e)})
	if t.idle == nil {
		t.idle = make(chan struct{})
		go a.tellQueued(t.idle)
	}
	return nil
}

func (a *attempt) tellQueued(idle chan struct{}) {
	defer close(idle)
	t := &a.telling
	for {
		t.mu.Lock()
		if len(t.queue) == 0 {
			t.idle = nil
			t.mu.Unlock()
			return
		}
		next := t.queue[0]
		t.mu.Unlock()
		err := a.append(next.ctx, next.event)
		t.mu.Lock()
		t.queue = t.queue[1:]
		if err != nil {
			t.err, t.queue = err, nil
		}
		t.mu.Unlock()
	}
}

// told waits until every event that was to be told soon is told, and returns what went wrong, once.
func (a *attempt) told() error {
	t := &a.telling
	t.mu.Lock()
	idle := t.idle
	t.mu.Unlock()
	if idle != nil {
		<-idle
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.err
	t.err = nil
	return err
}
