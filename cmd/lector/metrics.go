package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"lector/cache"
	"lector/cache/local"
	"lector/cache/spool"
	"lector/cmd/lector/monitor"
)

// metricsFlag declares --metrics for a command that works on jobs.
func (a *app) metricsFlag(f *pflag.FlagSet) {
	f.StringVar(&a.metrics, "metrics", os.Getenv("LECTOR_METRICS"), "`address` to serve /metrics, /healthz and /readyz on while the command runs, such as 127.0.0.1:9464 (default: $LECTOR_METRICS, else none)")
}

// watched is what a process shows of itself; nil shows nothing.
type watched struct {
	metrics *monitor.Metrics
	health  *monitor.Health
	server  *monitor.Server
	watch   sync.WaitGroup
	stop    context.CancelFunc // of the watchdog
}

// watchedParts are what a worker needs to be ready.
func watchedParts() []string {
	return []string{monitor.PartModel, monitor.PartQueue, monitor.PartStore}
}

// showItself serves --metrics, if it is given. It comes before the model is loaded, which may take minutes.
func (a *app) showItself() (*watched, error) {
	if a.metrics == "" {
		return nil, nil
	}
	w := &watched{
		metrics: monitor.New(monitor.Build{Version: version(), Go: runtime.Version()}, nil),
		health:  monitor.NewHealth(watchedParts()...),
		stop:    func() {},
	}
	var err error
	if w.server, err = monitor.Serve(a.metrics, w.metrics, w.health); err != nil {
		return nil, badInput(err)
	}
	a.note("metrics on http://%s/metrics", w.server.Address())
	a.watched = w
	return w, nil
}

// show says that the session's parts are there, and shows what they hold.
func (s *session) show() {
	w := s.watched
	if w == nil {
		return
	}
	w.metrics.Loaded(s.model.checkpoint.Name(), s.identity.Model.String(), s.identity.Class)
	w.health.Set(monitor.PartModel, monitor.There)
	w.health.Set(monitor.PartStore, monitor.StoreAnswers(s.space.Store, s.space.TenantName()))
	w.health.Set(monitor.PartQueue, s.seat.answers)
	if sp, ok := s.spool.(*spool.Spool); ok {
		w.metrics.Spool(sp)
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	dog := w.metrics.Watch(&s.seat, 0, func(waiting int, since time.Duration) {
		s.log.Warn("jobs wait beside an idle worker", zap.Int("waiting", waiting), zap.Duration("since", since))
	})
	w.watch.Go(func() { dog.Run(ctx) })
}

// seen is a store whose requests are counted and drawn. It is the store itself, below what seals, compresses and copies.
func (a *app) seen(store cache.Store) cache.Store {
	if a.watched != nil {
		store = a.watched.metrics.Store(store)
	}
	if a.tracer != nil {
		store = a.tracer.Store(store)
	}
	return store
}

// copies shows what copies of a far store on this machine are of use for.
func (w *watched) copies(s *local.Store) {
	if w != nil {
		w.metrics.Copies(s)
	}
}

// drain says that no more work is taken.
func (w *watched) drain() {
	if w != nil {
		w.health.Drain()
	}
}

// pause ends what uses the queue, which is about to be closed.
func (w *watched) pause() {
	if w == nil {
		return
	}
	w.health.Drain()
	w.stop()
	w.watch.Wait()
}

// Close stops the server, last of all: what a command did at its end can still be read.
func (w *watched) Close() error {
	if w == nil {
		return nil
	}
	return w.server.Close()
}

// version is what this program was built as.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
