package jetstream_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"lector/queue"
)

// Every worker that is there answers, and none that is not.
func TestRoster(t *testing.T) {
	cfg := config(t.TempDir())
	server, q := serve(t, cfg)
	nc, _ := raw(t, cfg.Dir)
	ask := func() []queue.WorkerStatus {
		t.Helper()
		return must(q.Workers(t.Context(), 500*time.Millisecond))(t)
	}
	if got := ask(); len(got) != 0 {
		t.Fatalf("nobody works, and %v answer", got)
	}
	other := must(server.Queue(t.Context()))(t)
	stop := must(q.Answer(func() queue.WorkerStatus { return queue.WorkerStatus{Host: "b", Process: 2} }))(t)
	must(other.Answer(func() queue.WorkerStatus {
		return queue.WorkerStatus{Host: "a", Jobs: []queue.WorkerJob{{ID: "j", Tokens: 5}}}
	}))(t)
	// What is no answer, or one of a later lector, is left out.
	must(nc.Subscribe("lector.workers.ask", func(m *nats.Msg) {
		_ = m.Respond([]byte("["))
		_ = m.Respond([]byte(`{"version":2,"host":"later"}`))
	}))(t)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	got := ask()
	if len(got) != 2 || got[0].Host != "a" || got[1].Host != "b" || len(got[0].Jobs) != 1 || got[0].Jobs[0].Tokens != 5 || got[0].Version != 1 {
		t.Fatalf("%+v", got)
	}
	stop()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ask(); len(got) != 0 {
		t.Fatalf("all have gone, and %v answer", got)
	}
}
