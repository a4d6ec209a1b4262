package gpu_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"lector/engine"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/stream"
	"lector/engine/weights"
)

// Records that stream through the smallest ring, some of them read ahead of their layer, leave the bits that records in
// memory leave, over chunks and drafts.
func TestStreamedRecordsLeaveTheSameBits(t *testing.T) {
	tokens := make([]engine.Token, 90)
	for i := range tokens {
		tokens[i] = engine.Token(i * i % 500)
	}
	b := open(t, gpu.Options{})
	read := func(dir string, o qwen4exp.Options) (state []byte, stats engine.ChunkStats) {
		t.Helper()
		c, err := weights.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		e, err := qwen4exp.Open(c, b, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s, err := e.Sequence(len(tokens))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for from := 0; from < len(tokens); from += 30 {
			if _, err := s.Prefill(context.Background(), tokens[from:from+30], nil); err != nil {
				t.Fatal(err)
			}
		}
		regions, err := s.Regions()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range regions {
			state = append(state, r.Data...)
		}
		return state, s.Stats()
	}
	want, _ := read(filepath.Join(fixtures, "tiny"), qwen4exp.Options{})
	stored := packTiny(t)
	c, err := weights.Open(stored)
	if err != nil {
		t.Fatal(err)
	}
	e, err := qwen4exp.Open(c, b, qwen4exp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	least, err := e.LeastMemory()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	got, stats := read(stored, qwen4exp.Options{Memory: int(least) + 4<<20, Stream: stream.Options{Ring: 16}})
	if !bytes.Equal(got, want) {
		t.Error("the state differs from that of records in memory")
	}
	if stats.Records < 72 {
		t.Errorf("%d records were read: the store was not needed", stats.Records)
	}
}
