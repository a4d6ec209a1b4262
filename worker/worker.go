package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"lector/cache"
	"lector/engine"
	"lector/queue"
)

// Worker takes jobs of one model from a queue and sees each through. Its collaborators are set by the caller,
// who also closes them.
type Worker struct {
	Queue     queue.Queue
	Space     *cache.Space
	Engine    engine.Engine
	Tokenizer engine.Tokenizer
	Salt      []byte           // of the tenant: part of every identity
	OldSalts  [][]byte         // that the tenant had: handles of then are resumed, and nothing is stored under them
	Log       *zap.Logger      // nil: silent
	Clock     func() time.Time // nil: time.Now
	Host      string           // for receipts and logs; in nothing that is stored under a digest
	Meter     Meter            // nil: nobody counts
	Tracer    Tracer           // nil: nobody draws
	Disk      *Disk            // nil: as much as is wanted
	Config    Config

	share *share // how this process's attempts have the engine; nil: the one that there is has it alone
}

// Run works on one delivery after the other until ctx ends, which drains: the chunk at hand is finished and
// stored, the delivery goes back uncounted, and Run returns nil. It returns an error when the queue is gone, or
// when this worker computes what it should not (cache.ErrDiverged).
func (w *Worker) Run(ctx context.Context, kinds ...queue.Kind) error {
	if err := w.Config.Validate(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := w.roomy(ctx); err != nil {
			return err
		}
		d, err := w.Queue.Next(ctx, kinds...)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("wait for a job: %w", err)
		}
		if err := w.Handle(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// Handle sees one delivery through to its settlement. The end of ctx is a drain, as in Run. The error is one that
// should end the worker; what goes wrong with the job alone is the job's fate.
func (w *Worker) Handle(ctx context.Context, d queue.Delivery) error {
	a := w.newAttempt(ctx, d)
	a.meter().Began(a.job.Kind)
	work, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	work, end := a.traced(work)
	if w.share != nil {
		a.lent = &lent{Engine: w.Engine, share: w.share, kind: a.job.Kind, ctx: work, attempt: a}
		a.Engine = a.lent
	}
	a.alive = startKeepalive(work, d, a.config.AckWait, alarms{lost: lose, claimLost: a.meter().ClaimLost})
	err := a.guarded(work)
	if told := a.told(); err == nil {
		err = told
	}
	a.alive.dropSoon(context.WithoutCancel(work), tenantPlace)
	a.alive.stop()
	if err != nil && work.Err() != nil {
		err = context.Cause(work) // a lost delivery explains whatever failed after it
	}
	stop := a.settle(context.WithoutCancel(work), err)
	end(err)
	return stop
}

// attempt is one delivery being worked on.
type attempt struct {
	*Worker
	Engine   engine.Engine // as this attempt has it
	lent     *lent         // the same, where it is shared
	config   Config        // with defaults
	log      *zap.Logger
	delivery queue.Delivery
	job      queue.Job
	drain    <-chan struct{} // closed when the worker is to end
	alive    *keepalive
	telling  telling
	started  time.Time

	identity cache.Identity
	standing *queue.Status // the job was final before
	stored   stored        // how far
	early    queue.State   // what the job ended as before its work was done; "": it did not
	result   any           // of work that was done in this attempt
}

func (w *Worker) newAttempt(ctx context.Context, d queue.Delivery) *attempt {
	a := &attempt{Worker: w, Engine: w.Engine, config: w.Config.withDefaults(), delivery: d, job: d.Job(), drain: ctx.Done()}
	a.started = a.now()
	a.log = w.jobLog(a.job, d.Attempt())
	return a
}

// guarded is work that does not take the process down: a job that makes it panic is a dead letter with the place.
func (a *attempt) guarded(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			a.log.Error("panic", zap.Any("value", v), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanic, v)
		}
	}()
	return a.work(ctx)
}

// work is the whole story of an attempt but its settlement.
func (a *attempt) work(ctx context.Context) error {
	standing := a.delivery.Standing()
	if standing.State.Final() {
		a.standing = &standing
		return a.retell(ctx)
	}
	if a.delivery.Attempt() > a.config.Attempts {
		return fmt.Errorf("attempt %d of job %s where %d are allowed: %w", a.delivery.Attempt(), a.job.ID, a.config.Attempts, errAttempts)
	}
	if standing.Cancel != nil {
		a.alive.end()
	}
	result, err := a.carry(ctx)
	var end *endError
	if errors.As(err, &end) {
		if err := a.finish(ctx, end, result); err != nil {
			return err
		}
		return end
	}
	if err != nil {
		return err
	}
	a.result = result
	return a.conclude(ctx, result)
}

// carry does the work of the job's kind. Beside an endError it returns what was kept, if that is anything.
func (a *attempt) carry(ctx context.Context) (any, error) {
	if err := a.begin(ctx); err != nil {
		return nil, err
	}
	switch a.job.Kind {
	case queue.Ingest:
		r, err := a.ingest(ctx)
		var end *endError
		if err != nil && !errors.As(err, &end) {
			return nil, err
		}
		return r, err
	case queue.Resume:
		r, err := a.resume(ctx)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	return nil, fmt.Errorf("job kind %q: %w", a.job.Kind, ErrInput)
}

// retell repeats the end of the story of a job that was final before: whoever set that state may have died before
// the event, and who follows the job waits for one.
func (a *attempt) retell(ctx context.Context) error {
	switch s := a.standing; s.State {
	case queue.Done:
		return a.tell(ctx, queue.Event{Type: queue.EventDone, Result: s.Result})
	case queue.Failed:
		return a.tell(ctx, queue.Event{Type: queue.EventFailed, Dead: s.Dead})
	case queue.Cancelled, queue.Expired:
		e := queue.Event{Type: queue.EventEnded, State: s.State, Result: s.Result}
		if s.Cancel != nil {
			e.Reason = s.Cancel.Reason
		}
		return a.tell(ctx, e)
	}
	return nil
}

// begin checks that the job is for this worker, and says that it is at work.
func (a *attempt) begin(ctx context.Context) error {
	if err := a.job.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	var err error
	if a.identity, err = identityOf(a.Engine, a.Salt); err != nil {
		return err
	}
	if model := a.identity.Model.String(); a.job.Model != model {
		return fmt.Errorf("job is for model %s, this worker has %s: %w", a.job.Model, model, cache.ErrIncompatible)
	}
	if t := a.job.Tenant; t != "" && t != a.tenant() {
		return fmt.Errorf("job is of tenant %s, this worker serves %s (start one with --tenant %s): %w", t, a.tenant(), t, errTenant)
	}
	var end *endError
	if err := a.drained(); err != nil && !(errors.As(err, &end) && a.delivery.Attempt() > 1) { // an attempt before may have left something
		return err
	}
	if err := a.enter(ctx); err != nil {
		return err
	}
	return a.tellSoon(ctx, queue.Event{Type: queue.EventStarted})
}

// tenantPlace is the name of the claim on one of the places of the job's tenant.
const tenantPlace = "place of the tenant"

// enter takes one of the places that the tenant's quota gives it, until the attempt ends.
func (a *attempt) enter(ctx context.Context) error {
	if a.asked() != nil {
		return nil // what is left to do takes no time
	}
	place, err := a.Queue.Enter(ctx, a.job.Owner(), a.config.LeaseTTL)
	if err != nil {
		return fmt.Errorf("begin job %s: %w", a.job.ID, err)
	}
	if place != nil {
		a.alive.hold(tenantPlace, place)
	}
	return nil
}

// conclude makes the result known: status first, so that a redelivery finds it.
func (a *attempt) conclude(ctx context.Context, result any) error {
	body, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode result of job %s: %w", a.job.ID, err)
	}
	if err := a.told(); err != nil {
		return err
	}
	if err := a.setStatus(ctx, queue.Status{State: queue.Done, Result: body}); err != nil {
		return err
	}
	return a.tell(ctx, queue.Event{Type: queue.EventDone, Result: body})
}

// settle carries out the fate of an attempt. What the queue does not take is left to its redelivery.
func (a *attempt) settle(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, a.config.SettleTimeout)
	defer cancel()
	fate := FateOf(err, a.delivery.Attempt(), a.jitter(), a.config)
	fields := []zap.Field{zap.String("class", fate.Class), zap.Duration("took", a.now().Sub(a.started)), zap.Error(err)}
	settled := a.carryOut(ctx, fate, err)
	a.meter().Ended(a.ending(fate, settled))
	if settled != nil {
		fields = append(fields, zap.NamedError("settle", settled))
	}
	level := zap.WarnLevel
	switch fate.Action {
	case Finish, Release, Wait:
		level = zap.InfoLevel
	case Stop, Alarm:
		level = zap.ErrorLevel
	}
	a.say(level, "attempt ended", fields...)
	switch {
	case fate.Action == Stop || fate.Action == Alarm:
		return err
	case errors.Is(settled, queue.ErrClosed):
		return settled
	}
	return nil
}

func (a *attempt) carryOut(ctx context.Context, fate Fate, err error) error {
	switch fate.Action {
	case Finish:
		if s := a.standing; s != nil && s.State == queue.Failed && s.Dead != nil {
			return a.delivery.Reject(ctx, *s.Dead) // an earlier attempt got as far as its status
		}
		return a.delivery.Done(ctx)
	case Retry:
		told := a.tell(ctx, queue.Event{Type: queue.EventRetry, Reason: err.Error()})
		return errors.Join(told, a.delivery.Retry(ctx, fate.After))
	case Wait:
		return a.delivery.Postpone(ctx, fate.After, err.Error())
	case Release:
		return a.delivery.Release(ctx)
	case Reject, Alarm:
		dead := queue.Dead{Class: fate.Class, Reason: err.Error(), LastGood: a.good(), Host: a.Host, Alarm: a.alarmOf(err)}
		status := a.setStatus(ctx, queue.Status{State: queue.Failed, Dead: &dead})
		if errors.Is(status, queue.ErrLost) {
			return status // somebody else has the last word
		}
		var told error
		if dead.Alarm != nil {
			told = a.tell(ctx, queue.Event{Type: queue.EventAlarm, Alarm: dead.Alarm})
		}
		told = errors.Join(told, a.tell(ctx, queue.Event{Type: queue.EventFailed, Dead: &dead}))
		return errors.Join(status, told, a.delivery.Reject(ctx, dead))
	}
	return nil // Abandon and Stop settle nothing
}

func (a *attempt) setStatus(ctx context.Context, s queue.Status) error {
	s.Job, s.Attempts, s.Updated = a.job, a.delivery.Attempt(), a.now().UTC()
	if err := a.Queue.SetStatus(ctx, s); err != nil {
		return fmt.Errorf("set status of job %s to %s: %w", a.job.ID, s.State, err)
	}
	return nil
}

// drained is errDrain once the worker is to end, or says that the job is. Work asks at the places where it can stop.
func (a *attempt) drained() error {
	if err := a.asked(); err != nil {
		return err
	}
	select {
	case <-a.drain:
		return errDrain
	default:
		return nil
	}
}

// own asks the queue whether the delivery is still ours, before something that others will see. It is while the job is
// to be cancelled, too.
func (a *attempt) own(ctx context.Context) error {
	if err := a.delivery.Extend(ctx); err != nil && !errors.Is(err, queue.ErrCancelled) {
		return fmt.Errorf("extend delivery of job %s: %w", a.job.ID, err)
	}
	return nil
}

func (w *Worker) now() time.Time {
	if w.Clock == nil {
		return time.Now()
	}
	return w.Clock()
}

// jitter is a number of the job's own.
func (a *attempt) jitter() uint64 {
	h := fnv.New64a()
	h.Write([]byte(a.job.ID)) // a hash takes everything
	return h.Sum64()
}

// lap adds the time that f takes to a part of a receipt, and draws it.
func (a *attempt) lap(ctx context.Context, name string, part *float64, f func(context.Context) error) error {
	start := a.now()
	ctx, end := a.span(ctx, name)
	err := f(ctx)
	end(err)
	*part += a.now().Sub(start).Seconds()
	return err
}

// capacity is the most tokens that a sequence of an order may hold.
func (a *attempt) capacity(order int) int {
	limit := a.Engine.Info().MaxTokens
	for _, c := range []int{order, a.config.Capacity} {
		if c > 0 {
			limit = min(limit, c)
		}
	}
	return limit
}
