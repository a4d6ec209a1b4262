package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"lector/cmd/lector/monitor"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
)

// serve works on the queue until ctx ends. The queue of a data folder goes with the process that owns the folder: then
// this one takes it over, or joins the next that does, and works on. Whatever was at hand comes back from what is stored.
func (s *session) serve(ctx context.Context, w *worker.Worker, slots worker.Slots) error {
	for {
		drain := context.AfterFunc(ctx, s.roll.drain)
		err := w.Serve(ctx, slots)
		drain()
		if ctx.Err() != nil || !errors.Is(err, queue.ErrClosed) || s.server != nil || s.app.nats.remote() {
			return err
		}
		s.app.note("the process that kept the queue of this data folder has ended")
		if err := s.rejoin(ctx); err != nil {
			return fmt.Errorf("go on without the process that kept the queue: %w ('lector worker' again takes what waits)", err)
		}
		if s.server != nil {
			s.app.note("this worker keeps the queue from now on")
		}
		again := s.worker(func(queue.Job) {})
		again.Disk = w.Disk
		w = again
	}
}

// rejoin opens the queue again after its server has gone.
func (s *session) rejoin(ctx context.Context) error {
	_ = s.queue.Close() // its connection is gone
	q, server, err := s.app.openQueue(ctx, s.queueConfig())
	if err != nil {
		return err
	}
	s.join(q, server)
	return nil
}

// queueConfig is how this session opens its queue.
func (s *session) queueConfig() jetstream.Config {
	return jetstream.Config{Model: s.identity.Model.String(), Log: s.queueLog, Service: s.app.serves, AckWait: s.app.ackWait}
}

// join makes a queue the session's.
func (s *session) join(q *jetstream.Queue, server *jetstream.Server) {
	s.queue, s.joined, s.server = q, q, server
	s.seat.Store(q)
}

// seat is the queue that a session has now, for what looks at it from outside.
type seat struct {
	atomic.Pointer[jetstream.Queue]
}

// Depth implements queue.Gauge.
func (s *seat) Depth(ctx context.Context) ([]queue.Depth, error) { return s.Load().Depth(ctx) }

// answers says whether the queue that there is now answers.
func (s *seat) answers(ctx context.Context) error { return monitor.QueueAnswers(s.Load())(ctx) }
