package jetstream_test

import (
	"errors"
	"testing"

	"lector/queue"
	"lector/queue/jetstream"
	"lector/queue/queuetest"
)

// A job that has ended can be forgotten with all that the queue holds of it, and nothing else goes; a job that has not
// cannot. The same order is then a new job.
func TestForget(t *testing.T) {
	_, q := serve(t, config(t.TempDir()))
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	job := func(id string) queue.Job {
		return queue.Job{
			Version: queue.JobVersion, ID: id, Kind: queue.Ingest, Model: queuetest.Model, Priority: "normal",
			Ingest: &queue.IngestOrder{Document: "d", Tokens: 3},
		}
	}
	messages := func() map[string]uint64 {
		t.Helper()
		r, err := q.Report(ctx)
		ok(err)
		out := map[string]uint64{}
		for _, s := range r.Streams {
			out[s.Name] = s.Messages
		}
		return out
	}
	end := func(id string, failed bool) {
		t.Helper()
		d, err := q.Next(ctx)
		ok(err)
		if d.Job().ID != id {
			t.Fatalf("delivered %s, not %s", d.Job().ID, id)
		}
		_, err = q.PublishHandle(ctx, id, []byte("{}"))
		ok(err)
		ok(q.Publish(ctx, queue.Event{Version: 1, Job: id, Type: queue.EventStarted}))
		if failed {
			ok(d.Reject(ctx, queue.Dead{Class: "c", Reason: "r"}))
			return
		}
		ok(q.SetStatus(ctx, queue.Status{Job: d.Job(), State: queue.Done, Attempts: 1, Result: []byte("{}")}))
		ok(d.Done(ctx))
	}
	for _, id := range []string{"stays", "goes", "failed"} {
		_, err := q.Submit(ctx, job(id))
		ok(err)
		if id == "goes" || id == "stays" {
			if err := q.Forget(ctx, id); !errors.Is(err, jetstream.ErrOpen) {
				t.Fatalf("an open job is forgotten: %v", err)
			}
		}
		end(id, id == "failed")
	}
	before := messages()
	ok(q.Forget(ctx, "goes"))
	ok(q.Forget(ctx, "failed"))
	if err := q.Forget(ctx, "goes"); !errors.Is(err, queue.ErrUnknown) {
		t.Errorf("forgotten twice: %v", err)
	}
	after := messages()
	for stream, gone := range map[string]uint64{"LECTOR_EVENTS": 2, "LECTOR_HANDLES": 2, "LECTOR_DEAD": 1, "KV_lector_jobs": 2, "LECTOR_JOBS": 0} {
		if before[stream]-after[stream] != gone {
			t.Errorf("%s had %d messages and has %d, where %d were to go", stream, before[stream], after[stream], gone)
		}
	}
	s, err := q.Status(ctx, "stays")
	ok(err)
	body, err := q.Handle(ctx, "stays")
	if ok(err); s.State != queue.Done || string(body) != "{}" {
		t.Errorf("the other job is %+v with the handle %s", s, body)
	}
	s, err = q.Submit(ctx, job("goes"))
	if ok(err); s.State != queue.Queued {
		t.Errorf("the same order is %s", s.State)
	}
	end("goes", false)
}
