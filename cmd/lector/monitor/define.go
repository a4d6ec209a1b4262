package monitor

import "github.com/prometheus/client_golang/prometheus"

// namespace begins the name of every metric.
const namespace = "lector"

// factory makes registered metrics. A name that is taken panics at the start of every process, so no test misses it.
type factory struct{ registry prometheus.Registerer }

func (f factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.registry.MustRegister(c)
	return c
}

func (f factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.registry.MustRegister(g)
	return g
}

func (f factory) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	f.registry.MustRegister(h)
	return h
}

// Buckets in seconds: a chunk takes from milliseconds on a small model to minutes on a slow disk, a job up to hours.
func chunkBuckets() []float64 { return prometheus.ExponentialBuckets(0.05, 2, 13) }
func stateBuckets() []float64 { return prometheus.ExponentialBuckets(0.01, 2, 14) }
func storeBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 4, 9) }
func jobBuckets() []float64   { return prometheus.ExponentialBuckets(0.25, 4, 9) }

func (f factory) work() workMetrics {
	return workMetrics{
		deliveries: f.counter("deliveries_total", "Jobs that this worker was given.", "kind"),
		running:    f.gauge("jobs_running", "Jobs that this worker works on now.", "kind"),
		attempts:   f.counter("attempts_total", "Attempts that ended, by what became of them.", "kind", "class"),
		seconds:    f.histogram("attempt_seconds", "How long attempts took.", jobBuckets(), "kind"),
		jobs:       f.counter("jobs_total", "Jobs that reached a final state here, by state and the class of its reason.", "kind", "state", "class"),
		lost:       f.counter("lease_losses_total", "Leases that were lost while they were worked under: of a delivery, or of the claim on a chunk.", "lease"),
		parts:      f.counter("ingest_seconds_total", "Seconds of finished ingests by part, as in their receipts: the parts add up to the whole.", "part"),
		behind:     f.counter("ingest_upload_seconds_total", "Seconds of finished ingests that chunks took into the store: held while reading stood still for it, behind while others were read.", "part"),
		tokens:     f.counter("tokens_total", "Tokens by where their state came from; deduped ones are computed ones whose rows were stored already.", "kind", "source"),
		drafts:     f.counter("drafts_total", "Drafted tokens by whether they came true.", "result"),
	}
}

func (f factory) chunk() chunkMetrics {
	return chunkMetrics{
		chunks:      f.counter("chunks_total", "Chunks and decoding steps that the engine computed.", "kind"),
		tokens:      f.counter("chunk_tokens_total", "Tokens of computed chunks and decoding steps.", "kind"),
		seconds:     f.counter("chunk_seconds_total", "Seconds of computed chunks by part: the parts add up to the whole.", "kind", "part"),
		whole:       f.histogram("chunk_seconds", "How long a computed chunk or decoding step took.", chunkBuckets(), "kind"),
		records:     f.counter("expert_records_total", "Expert records used from storage.", "kind"),
		recordBytes: f.counter("expert_record_bytes_total", "Bytes of those records in stored precision.", "kind"),
		ringWait:    f.counter("ring_wait_seconds_total", "Seconds that the reader of records waited for a free slot, beside the chunk's parts.", "kind"),
	}
}

func (f factory) state() stateMetrics {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "restore_seconds", Help: "How long a restore took, its checks included.", Buckets: stateBuckets(),
	})
	f.registry.MustRegister(seconds)
	return stateMetrics{
		lookups:      f.counter("lookups_total", "Searches for stored state of a document: a hit found some.", "result"),
		lookedTokens: f.counter("lookup_tokens_total", "Tokens that those searches found stored, or did not.", "result"),
		restores:     f.counter("restores_total", "Restores, by the class of what refused them; done is none.", "class"),
		seconds:      seconds,
		restored:     f.counter("restored_bytes_total", "Bytes of state that were restored.").WithLabelValues(),
		written:      f.counter("state_written_bytes_total", "Bytes of state that ingests stored.").WithLabelValues(),
		reused:       f.counter("state_reused_bytes_total", "Bytes of state that ingests wanted to store and found there.").WithLabelValues(),
	}
}

func (f factory) store() storeMetrics {
	return storeMetrics{
		requests: f.counter("store_requests_total", "Requests to the store, by what came of them.", "op", "result"),
		bytes:    f.counter("store_bytes_total", "Bytes that requests to the store carried.", "op"),
		seconds:  f.histogram("store_request_seconds", "How long requests to the store took, reading what they return included.", storeBuckets(), "op"),
	}
}
