package jetstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/queue/queuetest"
)

func job(id string) queue.Job {
	return queue.Job{
		Version: queue.JobVersion, ID: id, Kind: queue.Ingest, Model: queuetest.Model, Priority: "normal",
		Submitted: time.Unix(1_700_000_000, 0).UTC(),
		Ingest:    &queue.IngestOrder{Document: "d", Tokens: 7},
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// raw connects to the server of a folder as any NATS client would.
func raw(t *testing.T, dir string) (*nats.Conn, natsjs.JetStream) {
	t.Helper()
	var a struct{ URL, Token string }
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "nats.json")))(t), &a); err != nil {
		t.Fatal(err)
	}
	nc := must(nats.Connect(a.URL, nats.Token(a.Token), nats.NoReconnect()))(t)
	t.Cleanup(nc.Close)
	return nc, must(natsjs.New(nc))(t)
}

func waiting(t *testing.T, js natsjs.JetStream, stream string) uint64 {
	t.Helper()
	return must(must(js.Stream(t.Context(), stream))(t).Info(t.Context()))(t).State.Msgs
}

func next(t *testing.T, q queue.Queue, id string, attempt int) queue.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	d := must(q.Next(ctx))(t)
	if d.Job().ID != id || d.Attempt() != attempt {
		t.Fatalf("delivered attempt %d of %s, not attempt %d of %s", d.Attempt(), d.Job().ID, attempt, id)
	}
	return d
}

// none checks that nothing is due, and that the looking settled what stood for no job.
func none(t *testing.T, q queue.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if d, err := q.Next(ctx); err == nil {
		t.Fatalf("delivered attempt %d of %s, though none is due", d.Attempt(), d.Job().ID)
	}
}

// A submit that crashed between its two writes leaves a record without a message.
func TestSubmitMendsCrash(t *testing.T) {
	cfg := config(t.TempDir())
	_, q := serve(t, cfg)
	_, js := raw(t, cfg.Dir)
	j := job("a")
	rec := must(json.Marshal(map[string]any{"version": 1, "job": j, "state": "queued"}))(t)
	must(must(js.KeyValue(t.Context(), "lector_jobs"))(t).Create(t.Context(), "a", rec))(t)
	none(t, q)
	later := j
	later.Submitted = j.Submitted.Add(time.Hour)
	must(q.Submit(t.Context(), later))(t)
	must(q.Submit(t.Context(), later))(t)
	if n := waiting(t, js, "LECTOR_JOBS"); n != 1 {
		t.Fatalf("%d messages in the queue", n)
	}
	d := next(t, q, "a", 1)
	if !d.Job().Submitted.Equal(j.Submitted) {
		t.Fatalf("the job that came is of %v", d.Job().Submitted)
	}
}

// A message that an operator removed comes back with the next submit, in spite of the server's memory of its id.
func TestSubmitMendsLoss(t *testing.T) {
	cfg := config(t.TempDir())
	_, q := serve(t, cfg)
	_, js := raw(t, cfg.Dir)
	must(q.Submit(t.Context(), job("a")))(t)
	if err := must(js.Stream(t.Context(), "LECTOR_JOBS"))(t).Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(q.Submit(t.Context(), job("a")))(t)
	next(t, q, "a", 1)
}

func TestOtherMessages(t *testing.T) {
	cfg := config(t.TempDir())
	_, q := serve(t, cfg)
	_, js := raw(t, cfg.Dir)
	subject := "lector.jobs.ingest." + queuetest.Model + ".normal"

	must(js.Publish(t.Context(), subject, must(job("foreign").Encode())(t)))(t)
	d := next(t, q, "foreign", 1)
	if s := must(q.Status(t.Context(), "foreign"))(t); s.State != queue.Running {
		t.Fatalf("a job from outside is %s", s.State)
	}
	must(js.Publish(t.Context(), subject, must(job("foreign").Encode())(t)))(t)
	must(js.Publish(t.Context(), subject, []byte("no job")))(t)
	if n := waiting(t, js, "LECTOR_JOBS"); n != 3 {
		t.Fatalf("%d messages in the queue", n)
	}
	none(t, q)
	if n := waiting(t, js, "LECTOR_JOBS"); n != 1 {
		t.Fatalf("%d messages in the queue after those for no job were dropped", n)
	}
	if err := d.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	if jobs, dead := waiting(t, js, "LECTOR_JOBS"), waiting(t, js, "LECTOR_DEAD"); jobs != 0 || dead != 1 {
		t.Fatalf("%d messages in the queue and %d dead letters at the end", jobs, dead)
	}
}

func TestDeadLetter(t *testing.T) {
	cfg := config(t.TempDir())
	_, q := serve(t, cfg)
	_, js := raw(t, cfg.Dir)
	must(q.Submit(t.Context(), job("a")))(t)
	want := queue.Dead{Class: "bad-input", Reason: "why", LastGood: 512}
	if err := next(t, q, "a", 1).Reject(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if n := waiting(t, js, "LECTOR_JOBS"); n != 0 {
		t.Fatalf("%d messages in the queue", n)
	}
	msg := must(must(js.Stream(t.Context(), "LECTOR_DEAD"))(t).GetLastMsgForSubject(t.Context(), "lector.dead.a"))(t)
	var letter struct {
		Job      queue.Job
		Dead     queue.Dead
		Attempts int
	}
	if err := json.Unmarshal(msg.Data, &letter); err != nil {
		t.Fatal(err)
	}
	if letter.Dead != want || letter.Job.ID != "a" || letter.Attempts != 1 {
		t.Fatalf("dead letter is %s", msg.Data)
	}
}

func TestFull(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.MaxJobs = 1
	_, q := serve(t, cfg)
	must(q.Submit(t.Context(), job("a")))(t)
	must(q.Submit(t.Context(), job("a")))(t) // adopts
	if _, err := q.Submit(t.Context(), job("b")); !errors.Is(err, queue.ErrFull) {
		t.Fatalf("submit to a full queue: %v", err)
	}
	if _, err := q.Status(t.Context(), "b"); !errors.Is(err, queue.ErrUnknown) {
		t.Fatalf("status of the job that was refused: %v", err)
	}
	if err := next(t, q, "a", 1).Reject(t.Context(), queue.Dead{Class: "x"}); err != nil {
		t.Fatal(err)
	}
	must(q.Submit(t.Context(), job("b")))(t)
	if _, err := q.Submit(t.Context(), job("a")); !errors.Is(err, queue.ErrFull) {
		t.Fatalf("submit of the failed job to a full queue: %v", err)
	}
	if s := must(q.Status(t.Context(), "a"))(t); s.State != queue.Failed || s.Dead == nil {
		t.Fatalf("the failed job that was refused is %+v", s)
	}
}

func TestConsumerDiffers(t *testing.T) {
	cfg := config(t.TempDir())
	_, q := serve(t, cfg)
	none(t, q)
	cfg.AckWait = time.Minute
	other := must(jetstream.Connect(t.Context(), cfg))(t)
	defer other.Close()
	_, err := other.Next(t.Context())
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("ack_wait is %v, not 1m0s", ackWait)) {
		t.Fatalf("a worker with another ack wait got %v", err)
	}
}

func TestRefused(t *testing.T) {
	cfg := config(t.TempDir())
	s, q := serve(t, cfg)
	big := queue.Event{Version: 1, Job: "a", Type: queue.EventTokens, Text: strings.Repeat("x", 1<<20)}
	if err := q.Publish(t.Context(), big); err == nil || !strings.Contains(err.Error(), "tokens event of job a is 1048") {
		t.Errorf("an event of a MiB: %v", err)
	}
	j := job("a")
	j.Priority = "somewhat"
	if _, err := q.Submit(t.Context(), j); err == nil || !strings.Contains(err.Error(), "use one of high, normal, low") {
		t.Errorf("a priority that nobody serves: %v", err)
	}
	client := must(s.QueueFor(t.Context(), ""))(t)
	defer client.Close()
	if _, err := client.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "without a model") {
		t.Errorf("Next without a model: %v", err)
	}
	if _, err := q.Acquire(t.Context(), "n", 13*time.Hour); err == nil {
		t.Error("took a lease that outlives its bucket")
	}
	for _, cfg := range []jetstream.Config{{}, {URL: "nats://127.0.0.1:1"}, {Replicas: 9}, {Model: "a.b"}, {Priorities: []string{">"}}, {AckWait: -1}} {
		if _, err := jetstream.Open(t.Context(), cfg); err == nil {
			t.Errorf("opened %+v", cfg)
		}
	}
}
