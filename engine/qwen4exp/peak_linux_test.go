package qwen4exp_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lector/engine/stream"
	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/engine/weights/synth"
)

// anonymous is this process's memory that no file stands behind, in bytes.
func anonymous(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("the system does not say how much memory is in use")
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Skip("the system does not tell anonymous memory apart")
	return 0
}

// With experts of four times the budget, the memory in use stays within it, and each record is read once in a layer and
// chunk.
func TestPeakMemoryStaysInTheBudget(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := synth.Write(context.Background(), source, synth.Options{Preset: "tiny", Layers: 4, Experts: 400, Seed: 2}); err != nil {
		t.Fatal(err)
	}
	store := packInto(t, source, pack.Settings{Group: 64})
	p, err := weights.OpenPacked(store)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	total := stream.Records(p) * stream.SlotBytes(p)
	budget := total / 4
	e, disk := counted(t, store, budget)
	debug.FreeOSMemory()
	before := anonymous(t)
	var peak atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			peak.Store(max(peak.Load(), anonymous(t)))
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	s, err := e.Sequence(2048)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tokens := sample(1200)
	for from := 0; from < len(tokens); {
		to := min(len(tokens), from+min(e.Info().MaxChunk, 400))
		disk.Set()
		if _, err := s.Prefill(context.Background(), tokens[from:to], nil); err != nil {
			t.Fatal(err)
		}
		seen := map[int64]bool{}
		for _, r := range disk.Reads(weights.PackedExpertsFile) {
			if seen[r.Offset] {
				t.Errorf("chunk [%d, %d): the record at %d was read twice", from, to, r.Offset)
			}
			seen[r.Offset] = true
		}
		from = to
	}
	close(stop)
	<-stopped
	const beside = 8 << 20 // stacks, the runtime, what tests hold
	if used := peak.Load() - before; used > int64(budget+beside) {
		t.Errorf("%d bytes were in use at the peak, the budget is %d", used, budget)
	} else {
		t.Logf("peak %d MB of a budget of %d MB, records of %d MB, chunks of %d", used>>20, budget>>20, total>>20, e.Info().MaxChunk)
	}
}
