package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// A resume does not wait for a document that is being read, and a drain gives the document back at a boundary.
func TestServeKindsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		block := enginetest.BlockPrefill(r.toy.Prefills() + 2)
		r.toy.BeforePrefill = block.Hook
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Serve(ctx, worker.Slots{queue.Ingest: 1, queue.Resume: 2}) }()
		document := r.submit(r.ingestJob(prose(100), worker.IngestOptions{}))
		<-block.Started
		ids := []string{
			r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 9})),
			r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 9})),
		}
		synctest.Wait()
		for _, id := range ids {
			var got worker.Result
			r.result(id, &got)
			r.story(id, got)
		}
		stop()
		close(block.Release)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if s := r.status(document); s.State != queue.Queued || s.Attempts != 0 {
			t.Errorf("after the drain the document is %s with %d attempts", s.State, s.Attempts)
		}
		if r.toy.Open() != 0 {
			t.Errorf("%d sequences are open", r.toy.Open())
		}
	})
}

// What ends one slot ends them all, with its error.
func TestServeEnds(t *testing.T) {
	r := newRig(t)
	gone := errors.Join(queue.ErrClosed, engine.ErrDevice)
	r.queue.Fail(queuetest.Rule{Op: "Next", Nth: 2, Err: gone})
	if err := r.Serve(t.Context(), worker.Slots{queue.Ingest: 1, queue.Resume: 3}); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("ends with %v", err)
	}
	if err := r.Serve(t.Context(), nil); !errors.Is(err, worker.ErrInput) {
		t.Errorf("without a slot: %v", err)
	}
}
