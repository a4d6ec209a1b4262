package monitor

import (
	"github.com/prometheus/client_golang/prometheus"

	"lector/cache/local"
	"lector/cache/spool"
)

// Spool shows what a spool holds and how long chunks have waited for room in it.
func (m *Metrics) Spool(s interface{ Stats() spool.Stats }) {
	gauge := func(name, help string, value func(spool.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
			func() float64 { return value(s.Stats()) }))
	}
	gauge("spool_bytes", "Bytes of the disk that the spool takes.", func(s spool.Stats) float64 { return float64(s.Bytes) })
	gauge("spool_quota_bytes", "Most bytes of the disk that the spool may take.", func(s spool.Stats) float64 { return float64(s.Quota) })
	gauge("spool_waiting", "Chunks that wait for room in the spool now.", func(s spool.Stats) float64 { return float64(s.Waiting) })
	m.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Namespace: namespace, Name: "spool_wait_seconds_total", Help: "Seconds that chunks have waited for room in the spool."},
		func() float64 { return s.Stats().Waited.Seconds() }))
}

// Copies shows what the copies of a far store's blobs on this machine were of use for.
func (m *Metrics) Copies(s interface{ Stats() local.Stats }) {
	for result, value := range map[string]func(local.Stats) int64{
		hit:       func(s local.Stats) int64 { return s.Hits },
		miss:      func(s local.Stats) int64 { return s.Misses },
		"damaged": func(s local.Stats) int64 { return s.Damaged },
		"kept":    func(s local.Stats) int64 { return s.Kept },
		"failed":  func(s local.Stats) int64 { return s.Failed },
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Name: "local_copies_total", ConstLabels: prometheus.Labels{"result": result},
			Help: "Blobs of a far store by what the copies on this machine did: read here, asked of the store, damaged and removed, made, not to be made.",
		}, func() float64 { return float64(value(s.Stats())) }))
	}
}
