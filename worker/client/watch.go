package client

import (
	"context"
	"sync/atomic"
	"time"
)

// watch ends a wait for events when the job has ended and none come any more.
type watch struct {
	ctx   context.Context // of the wait
	end   context.CancelFunc
	done  chan struct{}
	last  atomic.Int64 // events heard
	ended bool         // the status said that the job had ended; after stop
}

func newWatch(ctx context.Context, c *Client, job string) *watch {
	w := &watch{done: make(chan struct{})}
	w.ctx, w.end = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		w.run(c, job)
	}()
	return w
}

func (w *watch) heard() { w.last.Add(1) }

// stop ends the watch, and returns when it is over. Stopping twice is harmless.
func (w *watch) stop() {
	w.end()
	<-w.done
}

// run looks at the status at every poll. After the end it leaves those events that are on their way one more.
func (w *watch) run(c *Client, job string) {
	tick := time.NewTicker(c.poll())
	defer tick.Stop()
	final, before := false, int64(-1)
	for {
		if now := w.last.Load(); final && now == before {
			w.ended = true
			w.end()
			return
		} else {
			before = now
		}
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		// What cannot be asked now is asked again: the queue comes back, or the wait for events ends.
		if s, err := c.Queue.Status(w.ctx, job); err == nil {
			final = s.State.Final()
		}
	}
}
