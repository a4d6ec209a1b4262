package worker_test

import (
	"sync"
	"testing"

	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// tally is a Meter that keeps what it hears.
type tally struct {
	worker.NoMeter
	mu       sync.Mutex
	began    int
	endings  []worker.Ending
	lookups  []worker.Lookup
	restores []worker.Restoring
	stored   []worker.Stored
	stats    map[queue.Kind]engine.ChunkStats
}

func (m *tally) Began(queue.Kind)            { m.note(func() { m.began++ }) }
func (m *tally) Ended(e worker.Ending)       { m.note(func() { m.endings = append(m.endings, e) }) }
func (m *tally) Looked(l worker.Lookup)      { m.note(func() { m.lookups = append(m.lookups, l) }) }
func (m *tally) Restored(r worker.Restoring) { m.note(func() { m.restores = append(m.restores, r) }) }
func (m *tally) Stored(s worker.Stored)      { m.note(func() { m.stored = append(m.stored, s) }) }
func (m *tally) Computed(k queue.Kind, s engine.ChunkStats) {
	m.note(func() { m.stats[k] = m.stats[k].Add(s) })
}

func (m *tally) note(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func metered(r *rig) *tally {
	m := &tally{stats: map[queue.Kind]engine.ChunkStats{}}
	r.Meter = m
	return m
}

// The meter hears what the receipt says, no more and no less.
func TestMeterHearsTheReceipt(t *testing.T) {
	r := newRig(t)
	m := metered(r)
	r.ingest(prose(3 * enginetest.ToyGrid))
	receipt := r.ingest(prose(5*enginetest.ToyGrid + 1))
	if m.began != 2 || len(m.endings) != 2 || m.endings[1].Final != queue.Done || m.endings[1].Result.(worker.Receipt).Handle != receipt.Handle {
		t.Fatalf("%d deliveries, endings %+v", m.began, m.endings)
	}
	if len(m.lookups) != 2 || m.lookups[0] != (worker.Lookup{Total: 3 * enginetest.ToyGrid}) ||
		m.lookups[1] != (worker.Lookup{Tokens: receipt.Tokens.Restored, Gained: receipt.Tokens.Restored, Total: receipt.Tokens.Total}) {
		t.Errorf("lookups %+v", m.lookups)
	}
	if len(m.restores) != 1 || m.restores[0].Tokens != receipt.Tokens.Restored || m.restores[0].Bytes == 0 || m.restores[0].Class != worker.ClassDone {
		t.Errorf("restores %+v", m.restores)
	}
	computed, written := 0, int64(0)
	for _, s := range m.stored[3:] {
		computed, written = computed+s.Tokens, written+s.WrittenBytes
	}
	if computed != receipt.Tokens.Computed || written != receipt.WrittenBytes {
		t.Errorf("%d tokens and %d bytes were stored, the receipt says %+v, %d bytes", computed, written, receipt.Tokens, receipt.WrittenBytes)
	}
	if got := m.stats[queue.Ingest].Tokens; got != 3*enginetest.ToyGrid+receipt.Engine.Tokens {
		t.Errorf("%d tokens computed, the receipt says %d", got, receipt.Engine.Tokens)
	}
}

// An attempt that fails is heard of once, and says whether the job will come again.
func TestMeterHearsFailures(t *testing.T) {
	r := newRig(t)
	m := metered(r)
	job := r.ingestJob(prose(10), worker.IngestOptions{})
	job.Ingest.Tokens = 11
	id := r.submit(job)
	r.turn(r.Worker)
	r.dead(id, "bad-input")
	r.toy.BeforePrefill = enginetest.FailPrefill(1, engine.ErrDevice)
	r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
	r.turn(r.Worker)
	if len(m.endings) != 2 {
		t.Fatalf("endings %+v", m.endings)
	}
	if e := m.endings[0]; e.Final != queue.Failed || e.Fate.Class != "bad-input" || e.Result != nil {
		t.Errorf("%+v", e)
	}
	if e := m.endings[1]; e.Final != "" || e.Fate.Action != worker.Retry || e.Fate.Class != "device" || e.Took < 0 {
		t.Errorf("%+v", e)
	}
}

// A job that was done before is acknowledged and heard of as done, without a result of this attempt.
func TestMeterHearsRepeats(t *testing.T) {
	r := newRig(t)
	m := metered(r)
	receipt := r.ingest(prose(2 * enginetest.ToyGrid))
	id := r.submit(r.ingestJob(prose(2*enginetest.ToyGrid), worker.IngestOptions{Name: "prose"}))
	if !r.queue.Duplicate(id) {
		t.Fatal("no second delivery")
	}
	r.turn(r.Worker)
	if e := m.endings[len(m.endings)-1]; len(m.endings) != 2 || e.Final != queue.Done || e.Result != nil {
		t.Errorf("endings %+v", m.endings)
	}
	if len(m.stored) != 2 || receipt.Tokens.Computed != 2*enginetest.ToyGrid {
		t.Errorf("stored %+v", m.stored)
	}
}
