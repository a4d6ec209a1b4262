package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"lector/cache"
	"lector/cache/compress"
	"lector/cmd/lector/tracing"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
)

// session is everything a job needs, in one process: a loaded model, a store, a queue, and a worker.
type session struct {
	app      *app
	model    *model
	identity cache.Identity
	salts    [][]byte // of the tenant: the first is that of what is stored now
	store    io.Closer
	space    *cache.Space
	spool    io.Closer // nil: none
	queue    queue.Queue
	joined   *jetstream.Queue  // the same, as it is
	server   *jetstream.Server // nil where another process owns the data folder
	seat     seat              // the queue again, as those see it who look on
	log      *zap.Logger
	watched  *watched        // what it shows of itself
	tracer   *tracing.Tracer // nil: no traces
	roll     *roll           // of its workers; nil: none so far
	unlist   func()          // ends the answers to who asks for workers; nil: none
}

// openSpace opens the store without a model or a queue.
func (a *app) openSpace(ctx context.Context) (io.Closer, *cache.Space, error) {
	inner, closer, err := openStore(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	near, err := a.nearCopies(a.seen(inner))
	if err != nil {
		return nil, nil, errors.Join(err, closer.Close())
	}
	store, err := a.sealed(ctx, near)
	if err == nil {
		store, err = compress.New(store, a.compress) // above the seal: what is sealed does not shrink
	}
	if err != nil {
		return nil, nil, errors.Join(err, closer.Close())
	}
	return closer, &cache.Space{Store: store, Tenant: a.tenant}, nil
}

// openSession loads the model and opens queue and store. The first process on a data folder owns its queue
// and serves it to the others.
func (a *app) openSession(ctx context.Context) (*session, error) {
	w, err := a.showItself()
	if err != nil {
		return nil, err
	}
	tr, err := openTracer(ctx)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	m, err := a.openModel()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	a.tracer = tr
	s := &session{app: a, model: m, log: a.logger(), watched: w, tracer: tr}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *session) open(ctx context.Context) error {
	id, err := s.model.engine.Identity()
	if err != nil {
		return err
	}
	fields := make([]cache.Field, len(id.Fields))
	for i, f := range id.Fields {
		fields[i] = cache.Field{Name: f.Name, Value: f.Value}
	}
	if s.salts, err = s.app.salts(ctx); err != nil {
		return err
	}
	s.identity = cache.NewIdentity(fields, id.Class, id.Grid, s.salts[0])
	s.app.spooling.near = true
	if s.store, s.space, err = s.app.openSpace(ctx); err != nil {
		return err
	}
	if err := probeStore(ctx, s.space.Store); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	q, server, err := s.app.openQueue(ctx, s.queueConfig())
	if err != nil {
		return err
	}
	s.join(q, server)
	if err := s.openSpool(); err != nil {
		return err
	}
	s.show()
	return nil
}

// queueLog says what the queue's server says, when asked to.
func (s *session) queueLog(level jetstream.Level, text string) {
	switch level {
	case jetstream.LevelDebug:
	case jetstream.LevelInfo:
		s.log.Debug(text)
	case jetstream.LevelWarn:
		s.log.Info(text)
	default:
		s.log.Warn(text)
	}
}

// Close waits for other processes that use this one's queue, then closes everything.
func (s *session) Close() error {
	var errs []error
	s.watched.pause()
	if s.unlist != nil {
		s.unlist()
	}
	if s.queue != nil {
		errs = append(errs, s.queue.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	if s.spool != nil {
		errs = append(errs, s.spool.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(append(errs, s.model.Close(), s.closeTracer(), s.watched.Close())...)
}

// worker works on this session's queue. announce hears of every delivery.
func (s *session) worker(announce func(queue.Job)) *worker.Worker {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	r := s.newRoll(host)
	if err := s.answer(r); err != nil {
		s.log.Warn("workers can be asked, but not this one", zap.Error(err))
	}
	s.roll = r
	w := &worker.Worker{
		Queue: announcing{Queue: listening{s.queue, r}, heard: announce}, Space: s.space, Engine: s.model.engine,
		Tokenizer: s.model.text, Salt: s.salts[0], OldSalts: s.salts[1:], Log: s.log, Host: host, Meter: s.watched.metersOf(r), Tracer: s.drawer(),
	}
	w.Config.AckWait = s.app.ackWait
	if s.app.sync == syncNone {
		w.Config.StoreSync = syncNone
	}
	w.Clock = s.joined.Now // deadlines are the queue's, whatever this host's clock says
	if s.model.tokenizer != nil {
		w.Config.Vocabulary = s.model.tokenizer.Vocabulary()
	}
	return w
}

// announcing tells which jobs a worker takes.
type announcing struct {
	queue.Queue
	heard func(queue.Job)
}

func (q announcing) Next(ctx context.Context, kinds ...queue.Kind) (queue.Delivery, error) {
	d, err := q.Queue.Next(ctx, kinds...)
	if err == nil {
		q.heard(d.Job())
	}
	return d, err
}
