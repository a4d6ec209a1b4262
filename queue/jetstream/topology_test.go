package jetstream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/queue/queuetest"
)

// fleet starts a server without any stream and connects to it as an operator would.
func fleet(t *testing.T) (url string, nc *nats.Conn, js natsjs.JetStream) {
	t.Helper()
	url = guarded(t, func(*server.Options) {})
	nc = must(nats.Connect(url))(t)
	t.Cleanup(nc.Close)
	return url, nc, must(natsjs.New(nc))(t)
}

// opened opens a queue, closes it and returns what that changed.
func opened(t *testing.T, cfg jetstream.Config) ([]jetstream.Change, error) {
	t.Helper()
	q, err := jetstream.Open(t.Context(), cfg)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	return q.Changes(), nil
}

func TestInit(t *testing.T) {
	url, _, js := fleet(t)
	_, err := opened(t, jetstream.Config{URL: url})
	if !errors.Is(err, jetstream.ErrTopology) || !strings.Contains(err.Error(), "stream LECTOR_JOBS is missing") || !strings.Contains(err.Error(), "lector queue init") {
		t.Fatalf("opening a server without streams: %v", err)
	}
	if changes := must(opened(t, jetstream.Config{URL: url, Create: true, MaxJobs: 7}))(t); len(changes) != 6 || changes[0].What != "created" {
		t.Fatalf("created %+v", changes)
	}
	for _, cfg := range []jetstream.Config{{URL: url}, {URL: url, Create: true}, {URL: url, Create: true, MaxJobs: 7}} {
		if changes := must(opened(t, cfg))(t); len(changes) != 0 {
			t.Errorf("doing it again with %+v changed %+v", cfg, changes)
		}
	}
	changes := must(opened(t, jetstream.Config{URL: url, Create: true, MaxJobs: 9, MaxEventAge: time.Hour, MaxEventBytes: 1 << 20, Dedupe: time.Minute}))(t)
	if len(changes) != 2 || !strings.Contains(changes[0].What, "max_msgs is 7, not 9") || !strings.Contains(changes[1].What, "max_age") {
		t.Fatalf("other limits changed %+v", changes)
	}
	have := must(js.Stream(t.Context(), "LECTOR_JOBS"))(t).CachedInfo().Config
	if have.MaxMsgs != 9 || have.Duplicates != time.Minute {
		t.Fatalf("jobs stream is %+v", have)
	}
}

// What an operator or an earlier lector left is told apart by name, then mended with nothing lost; what NATS cannot change
// is refused.
func TestStreamDiffers(t *testing.T) {
	url, _, js := fleet(t)
	for _, c := range []struct {
		config natsjs.StreamConfig
		words  []string
		stuck  string
	}{
		{natsjs.StreamConfig{Name: "LECTOR_JOBS", Subjects: []string{"lector.jobs.>"}, Retention: natsjs.WorkQueuePolicy, MaxAge: time.Hour},
			[]string{"subjects is [lector.jobs.>]", "discard is DiscardOld, not DiscardNew", "max_age is 1h0m0s, not 0s"}, ""},
		{natsjs.StreamConfig{Name: "LECTOR_EVENTS", Subjects: []string{"lector.events.*"}, AllowDirect: true},
			[]string{"allow_direct is true, not false"}, ""},
		{natsjs.StreamConfig{Name: "LECTOR_HANDLES", Subjects: []string{"lector.handles.*"}, Storage: natsjs.MemoryStorage},
			[]string{"storage is Memory, not File", "max_msgs_per_subject is 0, not 1"}, "NATS cannot change"},
		{natsjs.StreamConfig{Name: "LECTOR_JOBS", Subjects: []string{"lector.jobs.*.*.*"}},
			[]string{"retention is Limits, not WorkQueue"}, "NATS cannot change"},
		{natsjs.StreamConfig{Name: "LECTOR_DEAD", Subjects: []string{"lector.dead.*"}, Metadata: map[string]string{"lector.topology": "99"}},
			[]string{`"99"`, "a later lector"}, "a later lector"},
	} {
		if err := js.DeleteStream(t.Context(), c.config.Name); err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) {
			t.Fatal(err)
		}
		must(js.CreateStream(t.Context(), c.config))(t)
		_, err := opened(t, jetstream.Config{URL: url})
		for _, w := range append(c.words, c.config.Name) {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
		_, err = opened(t, jetstream.Config{URL: url, Create: true})
		if c.stuck == "" && err != nil || c.stuck != "" && (err == nil || !strings.Contains(err.Error(), c.stuck)) {
			t.Errorf("mending %s: %v", c.config.Name, err)
		}
		if c.stuck != "" {
			if err := js.DeleteStream(t.Context(), c.config.Name); err != nil {
				t.Fatal(err)
			}
		}
		must(opened(t, jetstream.Config{URL: url, Create: true}))(t)
		must(opened(t, jetstream.Config{URL: url}))(t)
	}
}

func TestCallersConnection(t *testing.T) {
	_, nc, _ := fleet(t)
	must(opened(t, jetstream.Config{Conn: nc, Create: true}))(t)
	if nc.IsClosed() {
		t.Fatal("closing the queue closed the caller's connection")
	}
}

func TestReport(t *testing.T) {
	cfg := config(t.TempDir())
	s, q := serve(t, cfg)
	other := must(s.QueueFor(t.Context(), "model-2"))(t)
	defer other.Close()
	for _, id := range []string{"a", "b", "c"} {
		must(q.Submit(t.Context(), job(id)))(t)
	}
	elsewhere := job("d")
	elsewhere.Model, elsewhere.Priority = "model-2", "high"
	must(q.Submit(t.Context(), elsewhere))(t)
	d := next(t, q, "a", 1)
	if err := d.Retry(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	d = must(q.Next(t.Context()))(t)
	r := must(other.Report(t.Context()))(t)
	// Of three jobs one is in hand; whether the one that was given back is it, the server decides.
	if len(r.Depths) < 2 || r.Streams[0].Messages != 4 || r.Paused != nil {
		t.Fatalf("report is %+v", r)
	}
	total := map[string]int{}
	for _, depth := range r.Depths {
		total[depth.Model] += depth.Waiting + depth.InHand
		if depth.Kind == queue.Ingest && depth.Priority == "normal" && depth.Model == queuetest.Model && (depth.InHand < 1 || !depth.Workers) {
			t.Errorf("depth of what is worked on is %+v", depth)
		}
		if depth.Model == "model-2" && (depth.Waiting != 1 || depth.Workers || depth.Priority != "high") {
			t.Errorf("depth of what nobody asked for is %+v", depth)
		}
	}
	if total[queuetest.Model] != 3 || total["model-2"] != 1 {
		t.Errorf("counts are %v of %+v", total, r.Depths)
	}
	if err := d.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
}
