package monitor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"lector/queue"
	"lector/worker"
)

// Build names what runs.
type Build struct {
	Version string
	Go      string
}

// Metrics are the figures of one process.
type Metrics struct {
	registry *prometheus.Registry
	now      func() time.Time

	work  workMetrics
	chunk chunkMetrics
	state stateMetrics
	store storeMetrics
	model *prometheus.GaugeVec
	busy  busy
}

// workMetrics count jobs and attempts.
type workMetrics struct {
	deliveries *prometheus.CounterVec   // kind
	running    *prometheus.GaugeVec     // kind
	attempts   *prometheus.CounterVec   // kind, class
	seconds    *prometheus.HistogramVec // kind
	jobs       *prometheus.CounterVec   // kind, state, class
	lost       *prometheus.CounterVec   // lease
	parts      *prometheus.CounterVec   // part, of ingests
	behind     *prometheus.CounterVec   // part, beside those of ingests
	tokens     *prometheus.CounterVec   // kind of job, source
	drafts     *prometheus.CounterVec   // result
}

// chunkMetrics count what the engine says of its chunks, every field of engine.ChunkStats.
type chunkMetrics struct {
	chunks      *prometheus.CounterVec // kind
	tokens      *prometheus.CounterVec // kind
	seconds     *prometheus.CounterVec // kind, part
	whole       *prometheus.HistogramVec
	records     *prometheus.CounterVec
	recordBytes *prometheus.CounterVec
	ringWait    *prometheus.CounterVec
}

// stateMetrics count stored and restored state.
type stateMetrics struct {
	lookups      *prometheus.CounterVec // result
	lookedTokens *prometheus.CounterVec // result
	restores     *prometheus.CounterVec // class
	seconds      prometheus.Histogram
	restored     prometheus.Counter
	written      prometheus.Counter
	reused       prometheus.Counter
}

// storeMetrics count requests to the store.
type storeMetrics struct {
	requests *prometheus.CounterVec   // op, result
	bytes    *prometheus.CounterVec   // op
	seconds  *prometheus.HistogramVec // op
}

// New makes the metrics of a process. now is nil for the wall clock.
func New(b Build, now func() time.Time) *Metrics {
	if now == nil {
		now = time.Now
	}
	m := &Metrics{registry: prometheus.NewRegistry(), now: now}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := factory{m.registry}
	f.gauge("build_info", "What runs, as labels; always 1.", "version", "go").WithLabelValues(b.Version, b.Go).Set(1)
	m.model = f.gauge("model_info", "The loaded model, as labels; always 1.", "name", "model", "class")
	m.work, m.chunk, m.state, m.store = f.work(), f.chunk(), f.state(), f.store()
	m.busy.since = now()
	m.preset()
	return m
}

// Loaded names the model that is loaded.
func (m *Metrics) Loaded(name, model, class string) {
	m.model.WithLabelValues(name, model, class).Set(1)
}

// preset shows zeros for what has not happened yet: a rate over a counter that appears out of nowhere misses its
// first step.
func (m *Metrics) preset() {
	for _, kind := range []queue.Kind{queue.Ingest, queue.Resume} {
		k := string(kind)
		m.work.deliveries.WithLabelValues(k)
		m.work.running.WithLabelValues(k)
		m.work.jobs.WithLabelValues(k, string(queue.Done), worker.ClassDone)
		for _, source := range []string{computed, restored, deduped, generated} {
			m.work.tokens.WithLabelValues(k, source)
		}
		m.chunk.preset(k)
	}
	m.presetFaults()
	for _, part := range ingestParts() {
		m.work.parts.WithLabelValues(part)
	}
	for _, part := range uploadParts() {
		m.work.behind.WithLabelValues(part)
	}
	for _, result := range []string{accepted, rejected} {
		m.work.drafts.WithLabelValues(result)
	}
	for _, lease := range []string{delivery, claim} {
		m.work.lost.WithLabelValues(lease)
	}
	for _, result := range []string{hit, miss} {
		m.state.lookups.WithLabelValues(result)
		m.state.lookedTokens.WithLabelValues(result)
	}
	for _, op := range []string{opPut, opGet} {
		m.store.bytes.WithLabelValues(op)
	}
}

func (c chunkMetrics) preset(kind string) {
	c.chunks.WithLabelValues(kind)
	c.tokens.WithLabelValues(kind)
	c.records.WithLabelValues(kind)
	c.recordBytes.WithLabelValues(kind)
	c.ringWait.WithLabelValues(kind)
	for _, part := range chunkParts() {
		c.seconds.WithLabelValues(kind, part)
	}
}

// presetFaults shows zeros for the faults of which one is enough for an alert, and for those that end the process.
func (m *Metrics) presetFaults() {
	for _, kind := range []queue.Kind{queue.Ingest, queue.Resume} {
		for _, class := range []string{"diverged", "corrupt", "probe", "panic", "device", "storage", "memory"} {
			m.work.attempts.WithLabelValues(string(kind), class)
		}
		for _, class := range []string{"attempts", "bad-input", "not-found", "incompatible", "expired", "corrupt", "diverged", "panic"} {
			m.work.jobs.WithLabelValues(string(kind), string(queue.Failed), class)
		}
	}
	for _, class := range []string{"corrupt", "probe"} {
		m.state.restores.WithLabelValues(class)
	}
	for _, op := range []string{opPut, opGet} {
		m.store.requests.WithLabelValues(op, "error")
	}
}
