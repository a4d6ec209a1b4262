package gpu_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"lector/engine"
	"lector/engine/qwen4exp"
	"lector/engine/stream"
	"lector/engine/stream/streamtest"
	"lector/engine/weights"
	"lector/metal/record"
)

// timeline is what happened in which order, from several goroutines.
type timeline struct {
	mu     sync.Mutex
	events []string
}

func (l *timeline) add(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

// until waits for n events of a name.
func (l *timeline) until(t *testing.T, event string, n int) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		seen := 0
		for _, e := range l.events {
			if e == event {
				seen++
			}
		}
		l.mu.Unlock()
		if seen >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d times %q, want %d", seen, event, n)
			return
		}
	}
}

// Rows of the n-gram table are read by many lanes that begin before layer 0 and that the layer with the embedding
// waits for: no read ends here before layer 0 has run, and none is left when the rows are gathered.
func TestNgramRowsAreReadAheadOfTheirLayer(t *testing.T) {
	log, disk := &timeline{}, &streamtest.Disk{}
	disk.Set(streamtest.Rule{File: weights.PackedNgramFile, First: 1, Do: func() {
		log.add("read begins")
		log.until(t, "moe_route", 1)
		log.add("read ends")
	}})
	route := playRoute(5)
	m := openRecorded(t, packTiny(t), func(d record.Dispatch) {
		route(d)
		if d.Kernel == "moe_route" || d.Kernel == "ple_gather" {
			log.until(t, "read begins", 8) // layer 0 has not ended, and many reads are under way
			log.add(d.Kernel)
		}
	}, qwen4exp.Options{Stream: stream.Options{Wrap: disk.Wrap}})
	tokens := []engine.Token{9, 8, 7, 6, 5, 4, 3, 2, 1, 30, 31, 32, 33, 34, 35, 36}
	if _, err := m.sequence.Prefill(context.Background(), tokens, nil); err != nil {
		t.Fatal(err)
	}
	gather := slices.Index(log.events, "ple_gather")
	if gather < slices.Index(log.events, "moe_route") || slices.Contains(log.events[gather:], "read ends") {
		t.Errorf("rows are gathered before they are read: %q", log.events)
	}
	if reads := len(disk.Reads(weights.PackedNgramFile)); reads < 16 {
		t.Errorf("%d rows were read", reads)
	}
}
