package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// Queue is a queue.Queue over one NATS connection.
type Queue struct {
	cfg   Config
	nc    *nats.Conn
	own   bool    // the connection is ours to close
	owner address // of the data folder, where that is another process
	js    jetstream.JetStream

	jobs, leases    jetstream.KeyValue
	events, handles jetstream.Stream

	life context.Context // ends with Close or with the connection
	end  context.CancelFunc
	work sync.WaitGroup // goroutines that outlive their call

	embedded bool     // at a server of this process
	changes  []Change // that opening made

	bells   map[queue.Kind]chan struct{} // rung when a job of the kind may be due
	ringing *nats.Subscription
	nudging *nats.Subscription

	mu        sync.Mutex
	consumers map[consumerKey]string
	empty     map[consumerKey]time.Time // until when those that had no job need not be looked at, if no bell rings
	stopped   bool                      // the queue was paused when it was looked at last
	turns     *turns
	held      map[string]*delivery // by job: those to nudge
	quota     quotaState

	clock   clock
	onClose []func()
}

var _ queue.Queue = (*Queue)(nil)

// Open opens the queue on cfg.Conn or on a new connection to cfg.URL; ErrTopology where the streams are not as they must
// be and cfg.Create does not allow to mend them.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Conn != nil {
		return open(ctx, cfg, cfg.Conn, false)
	}
	if cfg.URL == "" {
		return nil, errors.New("open queue: neither a connection nor a URL is given")
	}
	nc, err := dialRemote(cfg)
	if err != nil {
		return nil, err
	}
	return open(ctx, cfg, nc, true)
}

// dial connects with errors that come out of order sent to the log instead of to stderr.
func dial(cfg Config, url string, options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(url, append([]nats.Option{
		nats.Name("lector"), nats.Timeout(cfg.Timeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			cfg.Log(LevelWarn, "nats connection: "+err.Error())
		}),
	}, options...)...)
}

// open makes a queue of a connection, which is closed if it is own and anything fails.
func open(ctx context.Context, cfg Config, nc *nats.Conn, own bool) (*Queue, error) {
	q := &Queue{
		cfg: cfg, nc: nc, own: own,
		bells:     map[queue.Kind]chan struct{}{queue.Ingest: make(chan struct{}, 1), queue.Resume: make(chan struct{}, 1)},
		consumers: map[consumerKey]string{}, empty: map[consumerKey]time.Time{}, turns: newTurns(cfg.Priorities, cfg.Weights), held: map[string]*delivery{},
		quota: quotaState{full: map[string]time.Time{}, busy: map[string]time.Time{}},
	}
	q.life, q.end = context.WithCancel(context.Background())
	closed := nc.StatusChanged(nats.CLOSED)
	q.onClose = append(q.onClose, func() { nc.RemoveStatusListener(closed) })
	q.work.Go(func() {
		select {
		case <-closed:
			q.end()
		case <-q.life.Done():
		}
	})
	if nc.IsClosed() { // before we listened
		q.end()
	}
	if err := q.prepare(ctx); err != nil {
		_ = q.Close()
		return nil, err
	}
	return q, nil
}

func (q *Queue) prepare(ctx context.Context) error {
	call, cancel := q.call(ctx)
	defer cancel()
	var err error
	if q.js, err = jetstream.New(q.nc); err != nil {
		return q.fail(ctx, err, "open JetStream")
	}
	if q.cfg.Create {
		q.changes, err = ensure(call, q.js, q.cfg)
	} else {
		err = check(call, q.js, q.cfg)
	}
	if err != nil {
		return q.fail(ctx, noJetStream(err), "prepare queue")
	}
	for name, kv := range map[string]*jetstream.KeyValue{jobsBucket: &q.jobs, leasesBucket: &q.leases} {
		if *kv, err = q.js.KeyValue(call, name); err != nil {
			return q.fail(ctx, err, "open bucket %s", name)
		}
	}
	for name, s := range map[string]*jetstream.Stream{eventsStream: &q.events, handlesStream: &q.handles} {
		if *s, err = q.js.Stream(call, name); err != nil {
			return q.fail(ctx, err, "open stream %s", name)
		}
	}
	q.clock.set(q.events.CachedInfo().TimeStamp)
	if q.cfg.Model != "" {
		q.ringing, err = q.nc.Subscribe(jobBell(q.cfg.Model), func(m *nats.Msg) { q.rung(string(m.Data)) })
		if err != nil {
			return q.fail(ctx, err, "listen for jobs")
		}
		q.nudging, err = q.nc.Subscribe(cancelBell("*"), func(m *nats.Msg) { q.nudge(strings.TrimPrefix(m.Subject, cancelBell(""))) })
		if err != nil {
			return q.fail(ctx, err, "listen for cancellations")
		}
	}
	return nil
}

// Embedded says that the queue's server is of this process: nobody else had the data folder.
func (q *Queue) Embedded() bool { return q.embedded }

// Changes is what opening the queue did to the streams of the server.
func (q *Queue) Changes() []Change { return slices.Clone(q.changes) }

// noJetStream names the usual reason why nobody answers a request for a stream.
func noJetStream(err error) error {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("JetStream is off on this server or for this account: turn it on (nats-server -js) (%w)", err)
	}
	return err
}

// Close ends every call with queue.ErrClosed and closes the connection if Open made it. Deliveries that are not settled
// come again after AckWait. Closing twice is harmless.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.end()
	closers := q.onClose
	q.onClose = nil
	q.mu.Unlock()
	for _, f := range closers {
		f()
	}
	for _, sub := range []*nats.Subscription{q.ringing, q.nudging} {
		if sub != nil {
			_ = sub.Unsubscribe() // fails only where it is gone already
		}
	}
	if q.own {
		q.nc.Close()
	}
	q.work.Wait()
	return nil
}

// background runs f beside the call that asks for it; Close waits for it, and none starts after Close.
func (q *Queue) background(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() == nil {
		q.work.Go(f)
	}
}

// call is the context of one request: it ends with the caller's, with the queue, and after the timeout. While the
// connection is being made again it waits, at most AckWait: by then a delivery is somebody else's.
func (q *Queue) call(ctx context.Context) (context.Context, context.CancelFunc) {
	q.connected(ctx)
	c, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	stop := context.AfterFunc(q.life, cancel)
	return c, func() {
		stop()
		cancel()
	}
}

// fail names what was being done and makes the error one that the caller can decide on: its own context's,
// queue.ErrClosed, or what the server said.
func (q *Queue) fail(ctx context.Context, err error, format string, args ...any) error {
	doing := fmt.Sprintf(format, args...)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case q.life.Err() != nil, q.nc.IsClosed(), errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%s: %w", doing, queue.ErrClosed)
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%s: not connected: %w", doing, nats.ErrTimeout)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// Ours, not the caller's: it must not look as if the caller had given up.
		return fmt.Errorf("%s: no answer within %v: %w", doing, q.cfg.Timeout, nats.ErrTimeout)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// away says that an error is of a server that is gone for a while: who waits goes on waiting, and the log says so.
// A request that was under way when the connection broke gets no answer after the reconnect either.
func (q *Queue) away(ctx context.Context, err error) bool {
	if ctx.Err() != nil || q.life.Err() != nil {
		return false
	}
	var api *jetstream.APIError
	electing := errors.As(err, &api) && api.Code == 503 // a cluster between two leaders
	if !electing && !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, nats.ErrTimeout) {
		return false
	}
	q.cfg.Log(LevelWarn, "the queue does not answer, waiting for it: "+err.Error())
	return true
}

// wait returns when one of at most two bells rings or the time has come, or with the error that ends the wait.
func (q *Queue) wait(ctx context.Context, doing string, bells ...<-chan struct{}) error {
	t := time.NewTimer(q.cfg.Poll)
	defer t.Stop()
	bells = append(bells, nil, nil)
	select {
	case <-bells[0]:
	case <-bells[1]:
	case <-t.C:
	case <-ctx.Done():
		return q.fail(ctx, ctx.Err(), "%s", doing)
	case <-q.life.Done():
		return q.fail(ctx, queue.ErrClosed, "%s", doing)
	}
	return nil
}
