package jetstream

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"lector/queue"
)

// A job that asks for more than this lector knows fails by its version, and whoever waits for it hears that; a message that
// is nobody's job is put away.
func TestJobsOfLaterVersions(t *testing.T) {
	s, err := Embedded(t.Context(), Config{Dir: t.TempDir(), Model: "m", Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	q, err := s.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	job := func(id string) queue.Job {
		return queue.Job{
			Version: queue.JobVersion, ID: id, Kind: queue.Ingest, Model: "m", Priority: "normal", Submitted: time.Unix(0, 0).UTC(),
			Ingest: &queue.IngestOrder{Document: "d", Tokens: 7},
		}
	}
	if _, err := q.Submit(t.Context(), job("later")); err != nil {
		t.Fatal(err)
	}
	body, err := job("later").Encode()
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(body, []byte(`"version":1`), []byte(`"version":9`), 1)
	rec, err := q.change(t.Context(), "later", func(*record) error { return errKeep })
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := q.js.Stream(t.Context(), jobsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.DeleteMsg(t.Context(), rec.Sequence); err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{later, []byte(`{"version":9,"id":"nobody's"}`), []byte(`{"version":9,"id":"unknown"}`), []byte("no job")} {
		ack, err := q.js.Publish(t.Context(), jobSubject(queue.Ingest, "m", "normal"), b)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(b, later) {
			if _, err := q.change(t.Context(), "later", func(r *record) error { r.Sequence = ack.Sequence; return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := q.Submit(t.Context(), job("next")); err != nil {
		t.Fatal(err)
	}
	d, err := q.Next(t.Context(), queue.Ingest)
	if err != nil || d.Job().ID != "next" {
		t.Fatalf("delivered %v, %v", d, err)
	}
	if err := d.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	why := "version 9: this lector reads versions 1 to 2"
	got, err := q.Status(t.Context(), "later")
	if err != nil || got.State != queue.Failed || got.Dead == nil || got.Dead.Class != "bad-job" || !strings.Contains(got.Dead.Reason, why) {
		t.Errorf("the job of a later version is %+v, %v", got, err)
	}
	err = q.Follow(t.Context(), "later", func(e queue.Event) bool {
		if e.Type == queue.EventEnded && !strings.Contains(e.Reason, why) {
			t.Errorf("it ends for %q", e.Reason)
		}
		return e.Type != queue.EventEnded
	})
	if err != nil {
		t.Error(err)
	}
	names := []string{}
	err = q.DeadLetters(t.Context(), func(l queue.Letter) bool {
		names = append(names, l.Name)
		return true
	})
	if err != nil || len(names) != 4 || names[0] != "later" {
		t.Errorf("dead letters %v, %v", names, err)
	}
}
