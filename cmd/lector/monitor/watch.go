package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lector/queue"
)

const (
	// StuckAfter is how long jobs may wait beside an idle worker before the queue counts as stuck.
	StuckAfter = 5 * time.Minute
	// watchEvery is how often the watchdog looks when nobody scrapes.
	watchEvery = time.Minute
	// sampleTimeout bounds one look at the queue: a scrape waits for it.
	sampleTimeout = 3 * time.Second
)

// Watch looks at the queue with every scrape, and by itself: a consumer that is stuck must be noticed where nobody
// scrapes, too.
type Watch struct {
	gauge queue.Gauge
	m     *Metrics
	after time.Duration
	warn  func(waiting int, since time.Duration) // once for every time that the queue gets stuck

	jobs   *prometheus.Desc
	stuck  *prometheus.Desc
	failed prometheus.Counter

	mu      sync.Mutex
	waiting time.Time // since when looks have seen jobs waiting; zero: the last saw none
	warned  bool
}

// Watch begins to look at a queue. warn is nil where nobody is to be told; after 0 is StuckAfter.
func (m *Metrics) Watch(gauge queue.Gauge, after time.Duration, warn func(waiting int, since time.Duration)) *Watch {
	if after == 0 {
		after = StuckAfter
	}
	w := &Watch{
		gauge: gauge, m: m, after: after, warn: warn,
		jobs:  prometheus.NewDesc(namespace+"_queue_jobs", "Jobs of this model in the queue, waiting for a worker or taken by one.", []string{"kind", "priority", "state"}, nil),
		stuck: prometheus.NewDesc(namespace+"_queue_stuck", "1 while jobs wait, this worker is idle, and it has been given none for some minutes.", nil, nil),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "queue_sample_errors_total", Help: "Looks at the queue that got no answer.",
		}),
	}
	m.registry.MustRegister(w, w.failed)
	return w
}

// Run looks every minute until the context ends.
func (w *Watch) Run(ctx context.Context) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		w.sample(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Describe names the metrics of the watchdog.
func (w *Watch) Describe(ch chan<- *prometheus.Desc) {
	ch <- w.jobs
	ch <- w.stuck
}

// Collect looks at the queue now. Without an answer there are no figures: old ones would look like news.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	depths, stuck, ok := w.sample(context.Background())
	if !ok {
		return
	}
	for _, d := range depths {
		for state, n := range map[string]int{waiting: d.Waiting, taken: d.Taken} {
			ch <- prometheus.MustNewConstMetric(w.jobs, prometheus.GaugeValue, float64(n), string(d.Kind), d.Priority, state)
		}
	}
	value := 0.0
	if stuck {
		value = 1
	}
	ch <- prometheus.MustNewConstMetric(w.stuck, prometheus.GaugeValue, value)
}

// sample looks once. The queue is stuck when every look for a while has seen jobs waiting, and this process has had
// nothing to do and was given nothing all the time.
func (w *Watch) sample(ctx context.Context) (depths []queue.Depth, stuck, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	depths, err := w.gauge.Depth(ctx)
	if err != nil {
		w.failed.Inc()
		return nil, false, false
	}
	n := 0
	for _, d := range depths {
		n += d.Waiting
	}
	now := w.m.now()
	jobs, since := w.m.busy.idle()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n == 0 || jobs > 0 {
		w.waiting, w.warned = time.Time{}, false
		return depths, false, true
	}
	if w.waiting.IsZero() {
		w.waiting = now
	}
	if w.waiting.After(since) {
		since = w.waiting
	}
	if stuck = now.Sub(since) >= w.after; stuck && !w.warned && w.warn != nil {
		w.warned = true
		w.warn(n, now.Sub(since))
	}
	return depths, stuck, true
}
