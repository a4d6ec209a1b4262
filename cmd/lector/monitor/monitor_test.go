package monitor_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cmd/lector/monitor"
	"lector/engine"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// clock is a time that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// serve shows m and h until the test ends, and returns the address.
func serve(t *testing.T, m *monitor.Metrics, h *monitor.Health) string {
	t.Helper()
	s, err := monitor.Serve("127.0.0.1:0", m, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Address()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// has wants each line in what is shown.
func has(t *testing.T, address string, lines ...string) {
	t.Helper()
	_, text := get(t, address+"/metrics")
	for _, want := range lines {
		if !strings.Contains("\n"+text, "\n"+want+"\n") {
			name, _, _ := strings.Cut(want, "{")
			t.Errorf("no line %q; there is %q", want, grep(text, name))
		}
	}
}

func grep(text, part string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, part) {
			out = append(out, line)
		}
	}
	return out
}

// depths is a queue of a given size.
type depths struct {
	waiting, taken int
	err            error
}

func (d *depths) Depth(context.Context) ([]queue.Depth, error) {
	return []queue.Depth{{Kind: queue.Ingest, Priority: "normal", Waiting: d.waiting, Taken: d.taken}}, d.err
}

// A queue is stuck when jobs wait and an idle worker gets none, and only then.
func TestWatchdog(t *testing.T) {
	c, q := &clock{now: time.Unix(1_700_000_000, 0)}, &depths{}
	m := monitor.New(monitor.Build{Version: "test"}, c.Now)
	var warned []int
	m.Watch(q, 5*time.Minute, func(waiting int, _ time.Duration) { warned = append(warned, waiting) })
	address := serve(t, m, monitor.NewHealth())
	stuck := func(want string) {
		t.Helper()
		has(t, address, "lector_queue_stuck "+want)
	}
	c.add(time.Hour)
	stuck("0") // nothing waits
	q.waiting = 3
	stuck("0") // a job that has just come is no sign, however long there was none
	c.add(4 * time.Minute)
	stuck("0")
	c.add(time.Minute)
	stuck("1")
	stuck("1")
	if len(warned) != 1 || warned[0] != 3 {
		t.Errorf("warned %v, want once of 3", warned)
	}
	m.Began(queue.Ingest)
	stuck("0") // a delivery
	c.add(time.Hour)
	stuck("0") // busy with it, the others wait their turn
	m.Ended(worker.Ending{Kind: queue.Ingest})
	stuck("0")
	c.add(5 * time.Minute)
	stuck("1")
	q.waiting, q.taken = 0, 2
	stuck("0")
	has(t, address, `lector_queue_jobs{kind="ingest",priority="normal",state="taken"} 2`, "lector_queue_sample_errors_total 0")
	q.err = errors.New("cut off")
	if _, text := get(t, address+"/metrics"); len(grep(text, "lector_queue_jobs")) > 0 || len(grep(text, "lector_queue_stuck ")) > 0 {
		t.Error("figures are shown of a queue that does not answer")
	}
	q.err = nil
	has(t, address, "lector_queue_sample_errors_total 1")
}

func TestReadiness(t *testing.T) {
	h := monitor.NewHealth(monitor.PartModel, monitor.PartQueue, monitor.PartStore)
	address := serve(t, monitor.New(monitor.Build{}, nil), h)
	want := func(code int, body string) {
		t.Helper()
		if c, b := get(t, address+"/readyz"); c != code || strings.TrimSpace(b) != body {
			t.Errorf("%d %s, want %d %s", c, b, code, body)
		}
	}
	want(503, `{"ready":false,"parts":{"model":"not yet","queue":"not yet","store":"not yet"}}`)
	q, store := queuetest.NewMemory(nil), cachetest.NewMemory()
	faulty := cachetest.NewFaulty(store)
	h.Set(monitor.PartModel, monitor.There)
	h.Set(monitor.PartQueue, monitor.QueueAnswers(q))
	h.Set(monitor.PartStore, monitor.StoreAnswers(faulty, "default"))
	want(200, `{"ready":true,"parts":{"model":"ok","queue":"ok","store":"ok"}}`)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if c, b := get(t, address+"/readyz"); c != 503 || !strings.Contains(b, queue.ErrClosed.Error()) || !strings.Contains(b, `"store":"ok"`) {
		t.Errorf("%d %s", c, b)
	}
	h.Set(monitor.PartQueue, monitor.There)
	h.Drain()
	want(503, `{"ready":false,"draining":true,"parts":{"model":"ok","queue":"ok","store":"ok"}}`)
	if c, b := get(t, address+"/healthz"); c != 200 || b != "ok\n" {
		t.Errorf("%d %q: draining is not dying", c, b)
	}
}

func TestStoreIsCounted(t *testing.T) {
	m := monitor.New(monitor.Build{}, nil)
	address := serve(t, m, monitor.NewHealth())
	s := m.Store(cachetest.NewMemory())
	ctx := t.Context()
	put := func() error { return s.Put(ctx, "a/b", strings.NewReader("12345"), 5, cache.IfAbsent) }
	if err := put(); err != nil {
		t.Fatal(err)
	}
	if err := put(); !errors.Is(err, cache.ErrExists) {
		t.Fatal(err)
	}
	r, err := s.Get(ctx, "a/b", 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "234" {
		t.Fatal(string(b), err)
	}
	for range 2 { // closing twice is one request
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(ctx, "c", 0, -1); !errors.Is(err, cache.ErrNotFound) {
		t.Fatal(err)
	}
	for range s.List(ctx, "") {
	}
	if err := s.Delete(ctx, "a/b"); err != nil {
		t.Fatal(err)
	}
	has(t, address,
		`lector_store_bytes_total{op="put"} 5`, `lector_store_bytes_total{op="get"} 3`,
		`lector_store_requests_total{op="put",result="ok"} 1`, `lector_store_requests_total{op="put",result="exists"} 1`,
		`lector_store_requests_total{op="get",result="ok"} 1`, `lector_store_requests_total{op="get",result="not_found"} 1`,
		`lector_store_requests_total{op="list",result="ok"} 1`, `lector_store_requests_total{op="delete",result="ok"} 1`,
		`lector_store_request_seconds_count{op="get"} 2`)
}

// The store that counts keeps the contract.
func TestMeteredStoreConforms(t *testing.T) {
	cachetest.Run(t, func(*testing.T) cache.Store { return monitor.New(monitor.Build{}, nil).Store(cachetest.NewMemory()) })
}

// What goes wrong is counted by its class.
func TestFailures(t *testing.T) {
	m := monitor.New(monitor.Build{}, nil)
	address := serve(t, m, monitor.NewHealth())
	m.Began(queue.Ingest)
	m.Computed(queue.Ingest, engine.ChunkStats{}) // a chunk that failed
	m.Ended(worker.Ending{Kind: queue.Ingest, Fate: worker.Fate{Action: worker.Reject, Class: "corrupt"}, Final: queue.Failed})
	m.Began(queue.Ingest)
	m.ClaimLost()
	m.Ended(worker.Ending{Kind: queue.Ingest, Fate: worker.Fate{Action: worker.Abandon, Class: "lost"}})
	m.Restored(worker.Restoring{Kind: queue.Resume, Tokens: 9, Bytes: 99, Class: "probe"})
	has(t, address,
		`lector_jobs_total{class="corrupt",kind="ingest",state="failed"} 1`, `lector_attempts_total{class="lost",kind="ingest"} 1`,
		`lector_lease_losses_total{lease="delivery"} 1`, `lector_lease_losses_total{lease="claim"} 1`,
		`lector_restores_total{class="probe"} 1`, `lector_restored_bytes_total 0`, `lector_restore_seconds_count 0`,
		`lector_chunks_total{kind="ingest"} 0`, `lector_jobs_running{kind="ingest"} 0`)
}
