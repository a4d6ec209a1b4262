package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
)

// BenchmarkTinyJobs is how many documents of one cell pass through one worker a second, with an engine and a store that
// cost nothing: all of the time is the way through the queue and the worker's own steps.
func BenchmarkTinyJobs(b *testing.B) {
	b.Run("network", func(b *testing.B) { overNetwork(b, 1) })
	b.Run("synced in this process", func(b *testing.B) { inProcess(b, 1) })
}

// BenchmarkChunks is the same of documents of several cells: what the queue adds to a job of ten seconds, for as many
// chunks as that may have.
func BenchmarkChunks(b *testing.B) {
	for _, cells := range []int{4, 16, 64} {
		b.Run(fmt.Sprintf("network, %d chunks", cells), func(b *testing.B) { overNetwork(b, cells) })
		b.Run(fmt.Sprintf("synced in this process, %d chunks", cells), func(b *testing.B) { inProcess(b, cells) })
	}
}

func overNetwork(b *testing.B, cells int) {
	f := newFleet(b)
	f.space = &cache.Space{Store: cachetest.NewMemory()}
	f.pass(b, f.queue(f.url), f.queue(f.url), cells)
}

// inProcess has the queue of a data folder, which syncs every write.
func inProcess(b *testing.B, cells int) {
	f := newFleet(b)
	f.space = &cache.Space{Store: cachetest.NewMemory()}
	s, err := jetstream.Embedded(b.Context(), jetstream.Config{Dir: b.TempDir(), Model: f.id.Model.String(), AckWait: f.ackWait})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	q, err := s.Queue(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	f.pass(b, q, q, cells)
}

// pass submits all jobs first, and measures the worker. No two documents begin alike.
func (f *fleet) pass(b *testing.B, client, working queue.Queue, cells int) {
	var ids []string
	for i := range b.N {
		document := []int32{int32(i % 200), int32(i / 200 % 200), int32(i / 40000), 7}
		if cells > 1 {
			document = append(document, prose((cells-1)*enginetest.ToyGrid)...)
		}
		ids = append(ids, f.submit(client, document))
	}
	b.ResetTimer()
	began := time.Now()
	f.run(working, &enginetest.Toy{}, "one")
	for _, id := range ids {
		f.done(client, id)
	}
	took := time.Since(began)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/took.Seconds(), "jobs/s")
	b.ReportMetric(100*took.Seconds()/float64(b.N)/10, "%of10s")
}

// BenchmarkSteps is what each call on the way costs.
func BenchmarkSteps(b *testing.B) {
	f := newFleet(b)
	q := f.queue(f.url)
	job := worker.NewIngest(f.id, cache.Digest{}, worker.IngestOptions{Tokens: 1, Submitted: time.Now()})
	if _, err := q.Submit(b.Context(), job); err != nil {
		b.Fatal(err)
	}
	d, err := q.Next(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for name, step := range map[string]func() error{
		"extend":  func() error { return d.Extend(b.Context()) },
		"publish": func() error { return q.Publish(b.Context(), queue.Event{Version: 1, Job: job.ID}) },
		"claim": func() error {
			n++
			l, err := q.Acquire(b.Context(), fmt.Sprintf("node-%d", n), time.Minute)
			if err != nil {
				return err
			}
			return l.Release(b.Context())
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := step(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
