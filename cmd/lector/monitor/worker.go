package monitor

import (
	"sync"
	"time"

	"lector/engine"
	"lector/queue"
	"lector/worker"
)

var _ worker.Meter = (*Metrics)(nil)

// busy is what the watchdog wants to know of the workers in this process.
type busy struct {
	mu    sync.Mutex
	jobs  int
	since time.Time // of the last delivery, at first of the start
}

func (b *busy) step(jobs int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs += jobs
	b.since = now
}

// idle is how many jobs are worked on, and since when that number stands.
func (b *busy) idle() (jobs int, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.jobs, b.since
}

// Began counts a delivery.
func (m *Metrics) Began(kind queue.Kind) {
	m.busy.step(1, m.now())
	m.work.deliveries.WithLabelValues(string(kind)).Inc()
	m.work.running.WithLabelValues(string(kind)).Inc()
}

// Ended counts how an attempt came out, and what its receipt says.
func (m *Metrics) Ended(e worker.Ending) {
	m.busy.step(-1, m.now())
	kind := string(e.Kind)
	m.work.running.WithLabelValues(kind).Dec()
	m.work.attempts.WithLabelValues(kind, e.Fate.Class).Inc()
	m.work.seconds.WithLabelValues(kind).Observe(e.Took.Seconds())
	if e.Fate.Action == worker.Abandon {
		m.work.lost.WithLabelValues(delivery).Inc()
	}
	if e.Final != "" {
		m.work.jobs.WithLabelValues(kind, string(e.Final), e.Fate.Class).Inc()
	}
	switch r := e.Result.(type) {
	case worker.Receipt:
		m.ingested(r.Seconds)
		m.uploaded(r.Seconds)
	case worker.Result:
		m.resumed(r.Usage)
	}
}

func (m *Metrics) ingested(s worker.IngestSeconds) {
	for part, seconds := range map[string]float64{
		"wait": s.Wait, "restore": s.Restore, "prefill": s.Prefill, "store": s.Store, "other": s.Other,
	} {
		m.work.parts.WithLabelValues(part).Add(max(seconds, 0))
	}
}

func (m *Metrics) uploaded(s worker.IngestSeconds) {
	m.work.behind.WithLabelValues("held").Add(max(s.Held, 0))
	m.work.behind.WithLabelValues("behind").Add(max(s.Behind, 0))
}

func (m *Metrics) resumed(u worker.Usage) {
	tokens := func(source string, n int) { m.tokens(queue.Resume, source, n) }
	tokens(restored, u.Restored)
	tokens(computed, u.Reread+u.Prefilled)
	tokens(generated, u.Generated)
	m.work.drafts.WithLabelValues(accepted).Add(float64(u.Accepted))
	m.work.drafts.WithLabelValues(rejected).Add(float64(max(u.Drafted-u.Accepted, 0)))
}

func (m *Metrics) tokens(kind queue.Kind, source string, n int) {
	m.work.tokens.WithLabelValues(string(kind), source).Add(float64(n))
}

// Looked counts a search for stored state.
func (m *Metrics) Looked(l worker.Lookup) {
	result := hit
	if l.Tokens == 0 {
		result = miss
	}
	m.state.lookups.WithLabelValues(result).Inc()
	m.state.lookedTokens.WithLabelValues(hit).Add(float64(l.Tokens))
	m.state.lookedTokens.WithLabelValues(miss).Add(float64(max(l.Total-l.Tokens, 0)))
	m.tokens(queue.Ingest, restored, l.Gained)
}

// Restored counts a restore. What was refused restored nothing.
func (m *Metrics) Restored(r worker.Restoring) {
	m.state.restores.WithLabelValues(r.Class).Inc()
	if r.Class == worker.ClassDone {
		m.state.seconds.Observe(r.Took.Seconds())
		m.state.restored.Add(float64(r.Bytes))
	}
}

// Computed counts the statistics of a chunk.
func (m *Metrics) Computed(kind queue.Kind, s engine.ChunkStats) {
	if s == (engine.ChunkStats{}) {
		return // of a chunk that failed
	}
	k, c := string(kind), m.chunk
	c.chunks.WithLabelValues(k).Inc()
	c.tokens.WithLabelValues(k).Add(float64(s.Tokens))
	c.whole.WithLabelValues(k).Observe(s.Seconds)
	c.records.WithLabelValues(k).Add(float64(s.Records))
	c.recordBytes.WithLabelValues(k).Add(float64(s.RecordBytes))
	c.ringWait.WithLabelValues(k).Add(max(s.RingWait, 0))
	for part, seconds := range map[string]float64{
		"delta": s.Delta, "attention": s.Attention, "experts": s.Experts, "mtp": s.MTP, "ngram": s.Ngram, "other": s.Other,
	} {
		c.seconds.WithLabelValues(k, part).Add(max(seconds, 0)) // other is a difference, which rounding can turn negative
	}
}

// Stored counts a cell that is durable.
func (m *Metrics) Stored(s worker.Stored) {
	m.tokens(queue.Ingest, computed, s.Tokens)
	if s.Deduped {
		m.tokens(queue.Ingest, deduped, s.Tokens)
	}
	m.state.written.Add(float64(s.WrittenBytes))
	m.state.reused.Add(float64(s.ReusedBytes))
}

// ClaimLost counts a claim that was lost.
func (m *Metrics) ClaimLost() { m.work.lost.WithLabelValues(claim).Inc() }
