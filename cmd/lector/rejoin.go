package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"lector/cache"
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
		if s.server != nil || !s.app.ownerLeft(ctx, err) {
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

// ownerLeft says that an error means that another process kept the queue of the data folder, and has ended. Its successor
// goes on with the same jobs.
func (a *app) ownerLeft(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, queue.ErrClosed) && !a.nats.remote()
}

// atQueue runs f, which asks the session's queue, and again at the queue of the next owner of the data folder where another
// process kept it and has ended.
func (s *session) atQueue(ctx context.Context, f func() error) error {
	for {
		err := f()
		if s.server != nil || !s.app.ownerLeft(ctx, err) {
			return err
		}
		if err := s.rejoin(ctx); err != nil {
			return err
		}
	}
}

// hearing orders a text that this process works on where nobody else does. Where the queue goes with its owner, the order goes
// with it, and the same text is ordered again at the next one's.
func (s *session) hearing(ctx context.Context, handle cache.Digest, f resumeFlags) (hearing, error) {
	status, err := f.submit(ctx, s.client(), handle, s.identity.Model.String())
	if err != nil {
		return hearing{}, err
	}
	f.seed, f.seeded = status.Job.Resume.Sampling.Seed, true
	wait := func(ctx context.Context, follow func(context.Context) error) error {
		return s.beside(ctx, status.Job, follow)
	}
	again := func(ctx context.Context) (hearing, error) {
		if err := s.rejoin(ctx); err != nil {
			return hearing{}, err
		}
		// The next owner may have taken the order over.
		_, _ = s.joined.Cancel(ctx, status.Job.ID, queue.Cancellation{Reason: "ordered again"})
		return s.hearing(ctx, handle, f)
	}
	return hearing{s.client(), status.Job, wait, again}, nil
}

// once is the events of a job's story that no earlier follower has told: the queue of the next owner tells it from its beginning.
type once struct{ told int }

// of is what one follower hears.
func (o *once) of(heard func(queue.Event)) func(queue.Event) {
	n := 0
	return func(e queue.Event) {
		if n++; n > o.told {
			o.told = n
			heard(e)
		}
	}
}

// The times of an owner that is about to leave its data folder: how often it looks whether others still use the queue, for how
// long it says nothing of that, and how long those have that came while it left.
const (
	leavePoll  = 20 * time.Millisecond
	leaveQuiet = 2 * time.Second
	leaveLate  = 5 * time.Second
)

// leave keeps serving the queue of a data folder while commands use it that cannot go on without, many of which may have been
// started at once; an interrupt ends that. server is nil where this process is not the owner.
func (a *app) leave(ctx context.Context, server *jetstream.Server) {
	if server == nil {
		return
	}
	for began, said := time.Now(), false; server.Clients() > 0 && ctx.Err() == nil; time.Sleep(leavePoll) {
		if !said && time.Since(began) > leaveQuiet {
			said = true
			a.note("another lector still uses this data folder; serving its queue until it is done (Ctrl-C ends that)")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, leaveLate)
	defer cancel()
	if err := server.Retire(ctx); err != nil {
		a.note("lector: %s", oneLine(err))
	}
}

// leaving is a server that is left before it is closed.
type leaving struct {
	*jetstream.Server
	leave func()
}

// Close implements io.Closer.
func (l leaving) Close() error {
	l.leave()
	return l.Server.Close()
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
	return jetstream.Config{Model: s.identity.Model.String(), Log: s.queueLog, Service: s.app.serves, Visit: s.app.visits, AckWait: s.app.ackWait}
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
