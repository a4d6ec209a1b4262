package jetstream_test

import (
	"testing"
	"time"

	"lector/queue"
	"lector/queue/jetstream"
)

// A job counts as waiting until a worker has it, as taken until it is settled, also between two attempts.
func TestDepth(t *testing.T) {
	_, q := serve(t, config(t.TempDir()))
	want := func(when string, waiting, taken int) {
		t.Helper()
		var sum queue.Depth
		seen := 0
		for _, d := range must(q.Depth(t.Context()))(t) {
			if d.Kind == queue.Ingest && d.Priority == "normal" {
				seen++
				sum = d
			} else if d.Waiting != 0 || d.Taken != 0 {
				t.Errorf("%s: %+v", when, d)
			}
		}
		if seen != 1 || sum.Waiting != waiting || sum.Taken != taken {
			t.Errorf("%s: %+v (%d rows), want %d waiting and %d taken", when, sum, seen, waiting, taken)
		}
	}
	want("at first", 0, 0)
	for _, id := range []string{"a", "b", "c"} {
		must(q.Submit(t.Context(), job(id)))(t)
	}
	want("submitted", 3, 0)
	d := next(t, q, "a", 1)
	want("delivered", 2, 1)
	if err := d.Retry(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	want("to be tried again", 2, 1)
	if err := next(t, q, "b", 1).Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("one is done", 1, 1)
}

// A queue that only submits has no jobs of its own to count.
func TestDepthWithoutModel(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Model = ""
	server := must(jetstream.Embedded(t.Context(), cfg))(t)
	defer server.Close()
	q := must(server.Queue(t.Context()))(t)
	if _, err := q.Depth(t.Context()); err == nil {
		t.Error("counted the jobs of no model")
	}
}
