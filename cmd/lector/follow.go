package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker/client"
)

// takeNotice is after how long a job that no worker has taken is worth a word.
const takeNotice = 10 * time.Second

// client submits jobs to this session's queue and follows them.
func (s *session) client() *client.Client {
	return &client.Client{Queue: drawn{s.queue, s}, Space: s.space}
}

// drawn is the session's queue, with a trace for each submit.
type drawn struct {
	queue.Queue
	session *session
}

func (q drawn) Submit(ctx context.Context, job queue.Job) (queue.Status, error) {
	return q.session.submit(ctx, job)
}

// inputClasses are the reasons of a dead letter that the input is at fault for.
func inputClasses() []string {
	return []string{"bad-input", "incompatible", "corrupt", "sealed", "expired", "not-found", "numeric", "state", "probe"}
}

// jobError says whose fault a job's end is.
func jobError(err error) error {
	var failed *client.Failed
	if errors.As(err, &failed) && slices.Contains(inputClasses(), failed.Dead.Class) {
		return badInput(err)
	}
	return err
}

// served says that others work on this session's jobs of a kind: the workers of a fleet, or the one that owns the folder.
func (s *session) served(kind queue.Kind) bool {
	return s.app.nats.remote() || s.joined.Served(kind, s.identity.Model.String())
}

// beside runs follow, which waits for a job to end, beside a worker of this process, where no other takes the job. An
// interrupt drains the worker: the chunk at hand is finished and stored.
//
// Where another process keeps the queue of the data folder and ends meanwhile, a document is read on at the queue of the
// next; a text has to be asked for again there.
func (s *session) beside(ctx context.Context, job queue.Job, follow func(context.Context) error) error {
	if job.Kind == queue.Resume {
		return s.besideWorker(ctx, job, follow)
	}
	return s.atQueue(ctx, func() error { return s.besideWorker(ctx, job, follow) })
}

func (s *session) besideWorker(ctx context.Context, job queue.Job, follow func(context.Context) error) error {
	if s.served(job.Kind) {
		return s.app.await(ctx, s.queue, job, follow)
	}
	s.app.noticePause(ctx, s.queue)
	drain, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	w := s.worker(func(j queue.Job) {
		if j.ID != job.ID && j.Ingest != nil {
			s.app.note("first finishing an earlier ingest: %s (%d tokens)", j.Ingest.Name, j.Ingest.Tokens)
		}
	})
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go func() {
		err := w.Run(drain, job.Kind)
		if err != nil {
			// Without a worker nothing more will happen; but the story of a job that has ended is still to be heard.
			if status, unknown := s.queue.Status(watch, job.ID); unknown != nil || !status.State.Final() {
				unwatch()
			}
		}
		worked <- err
	}()
	followed := follow(watch)
	stop()
	if err := <-worked; err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return jobError(followed)
}

// pausing is a queue that can be paused.
type pausing interface {
	queue.Jobs
	Paused(context.Context) (*queue.Pause, error)
}

// noticePause says that the queue is paused, if it is.
func (a *app) noticePause(ctx context.Context, q pausing) {
	if p, err := q.Paused(ctx); err == nil && p != nil {
		a.note("the queue is %s ('lector queue resume' ends that)", pausedLine(*p))
	}
}

// await runs follow while others work on the job.
func (a *app) await(ctx context.Context, q pausing, job queue.Job, follow func(context.Context) error) error {
	a.noticePause(ctx, q)
	quiet := time.AfterFunc(takeNotice, func() {
		if s, err := q.Status(ctx, job.ID); err == nil && s.State == queue.Queued {
			a.note("no worker has taken the job yet; it waits for one of model %.16s", job.Model)
		}
	})
	defer quiet.Stop()
	err := follow(ctx)
	again := "the same command follows it again"
	if job.Kind == queue.Resume {
		again = "'lector resume --attach " + job.ID + "' hears it"
	}
	if err != nil && ctx.Err() != nil {
		a.note("job %s goes on without this command; %s", job.ID, again)
	}
	return jobError(err)
}

// since leaves out the events from before a moment, but for the job's end: what an earlier run went through is not this
// one's progress.
func since(began time.Time, heard func(queue.Event)) func(queue.Event) {
	return func(e queue.Event) {
		if e.Type.Final() || !e.At.Before(began) {
			heard(e)
		}
	}
}

// follow waits for a job, works on it where nobody else does, and returns how it ended.
func (s *session) follow(ctx context.Context, job queue.Job, heard func(queue.Event)) (status queue.Status, err error) {
	var told once
	began := time.Now()
	err = s.beside(ctx, job, func(ctx context.Context) error {
		if status, err = s.client().Follow(ctx, job.ID, told.of(since(began, heard))); err == nil {
			err = client.Ended(status)
		}
		return err
	})
	return status, err
}

// desk is a queue and a store to submit jobs to, without a model: others work on them.
type desk struct {
	*client.Client
	app   *app
	queue *jetstream.Queue
	leave closers // the queue
	store io.Closer
}

// take makes a queue the desk's.
func (d *desk) take(q *jetstream.Queue, leave closers) {
	d.queue, d.leave = q, leave
	d.Client = &client.Client{Queue: lasting{q, d}, Space: d.Space}
}

// lasting is the desk's queue, whose jobs are submitted whoever keeps it meanwhile: by its id a job is submitted once.
type lasting struct {
	queue.Queue
	desk *desk
}

func (q lasting) Submit(ctx context.Context, job queue.Job) (status queue.Status, err error) {
	err = q.desk.atQueue(ctx, func(q *jetstream.Queue) error {
		status, err = q.Submit(ctx, job)
		return err
	})
	return status, err
}

// atQueue runs f, and again at the queue of the next owner of the data folder where another process kept it and has ended.
func (d *desk) atQueue(ctx context.Context, f func(*jetstream.Queue) error) error {
	for {
		err := f(d.queue)
		if d.queue.Embedded() || !d.app.ownerLeft(ctx, err) {
			return err
		}
		if err := d.rejoin(ctx); err != nil {
			return err
		}
	}
}

// rejoin opens the queue again after its owner has gone.
func (d *desk) rejoin(ctx context.Context) error {
	_ = d.leave.Close() // its connection is gone
	d.leave = nil
	q, leave, err := d.app.openQueueOnly(ctx, jetstream.Config{})
	if err != nil {
		return err
	}
	d.take(q, leave)
	return nil
}

// openDesk opens queue and store. Without a fleet, the queue is that of the data folder, whose owner is another process;
// if there is none, the error is jetstream.ErrNoServer.
func (a *app) openDesk(ctx context.Context) (*desk, error) {
	q, err := a.joinQueue(ctx)
	if err != nil {
		return nil, err
	}
	return a.newDesk(ctx, q, closers{q})
}

// newDesk takes an open queue.
func (a *app) newDesk(ctx context.Context, q *jetstream.Queue, leave closers) (*desk, error) {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return nil, errors.Join(err, leave.Close())
	}
	d := &desk{Client: &client.Client{Space: space}, app: a, store: store}
	d.take(q, leave)
	return d, nil
}

// hearing is how the text of a job is heard at a desk, whoever keeps the queue meanwhile.
func (d *desk) hearing(job queue.Job) hearing {
	wait := func(ctx context.Context, follow func(context.Context) error) error {
		return d.app.await(ctx, d.queue, job, follow)
	}
	again := func(ctx context.Context) (hearing, error) {
		if err := d.rejoin(ctx); err != nil {
			return hearing{}, err
		}
		return d.hearing(job), nil
	}
	return hearing{d.Client, job, wait, again}
}

// closeDesk ends a desk; what goes wrong then cannot change the result, so it is only said.
func (a *app) closeDesk(d *desk) {
	if err := errors.Join(d.leave.Close(), d.store.Close()); err != nil {
		a.note("lector: close: %s", oneLine(err))
	}
}

// serves says that somebody works on jobs of a kind and model.
func (d *desk) serves(a *app, kind queue.Kind, model string) bool {
	return a.nats.remote() || d.queue.Served(kind, model)
}

// errNobody says that a job would wait for ever.
func errNobody(kind queue.Kind) error {
	return badInput(fmt.Errorf("no worker takes %s jobs of this model on this data folder: start 'lector worker', or leave --detach out", kind))
}
