package fleet_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"lector/cache"
	"lector/cache/dir"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cutWait is how long a delivery stands where a worker is cut off: it leaves a loaded machine room for a heartbeat in time.
const cutWait = 3 * time.Second

// fleet is one NATS server and one store, for any number of workers.
type fleet struct {
	testing.TB
	url     string
	ackWait time.Duration
	space   *cache.Space
	id      cache.Identity
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("server is not ready")
	}
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	f := &fleet{TB: t, url: s.ClientURL(), ackWait: time.Minute, space: &cache.Space{Store: store}}
	id, err := (&enginetest.Toy{}).Identity()
	if err != nil {
		t.Fatal(err)
	}
	fields := make([]cache.Field, len(id.Fields))
	for i, field := range id.Fields {
		fields[i] = cache.Field(field)
	}
	f.id = cache.NewIdentity(fields, id.Class, id.Grid, nil)
	return f
}

// queue opens the fleet's queue over a network of its own, where what is asked when it is cut is given up soon.
func (f *fleet) queue(url string) *jetstream.Queue {
	f.Helper()
	timeout := 20 * time.Second
	if url != f.url {
		timeout = time.Second
	}
	q, err := jetstream.Open(f.Context(), jetstream.Config{
		URL: url, Create: true, Model: f.id.Model.String(), AckWait: f.ackWait, Poll: 20 * time.Millisecond, Timeout: timeout,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = q.Close() })
	return q
}

// run has a worker work until the test ends.
func (f *fleet) run(q queue.Queue, toy *enginetest.Toy, host string) {
	f.start(&worker.Worker{Queue: q, Engine: toy, Host: host})
}

// start has a worker of the fleet's store work until the test ends.
func (f *fleet) start(w *worker.Worker) {
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	w.Space, w.Tokenizer = f.space, enginetest.ToyTokenizer{}
	w.Config = worker.Config{AckWait: f.ackWait, WaitPoll: 20 * time.Millisecond, RetryMin: time.Millisecond}
	work.Go(func() {
		if err := w.Run(ctx); err != nil {
			f.Errorf("worker %s ended: %v", w.Host, err)
		}
	})
	f.Cleanup(func() { stop(); work.Wait() })
}

func prose(n int) []int32 {
	ids, err := enginetest.ToyTokenizer{}.Encode(strings.Repeat("It was a bright cold day, and the clocks were striking 13. ", n/20+1))
	if err != nil {
		panic(err)
	}
	return ids[:n]
}

func (f *fleet) submit(q queue.Queue, tokens []int32) string {
	f.Helper()
	d, err := worker.StoreDocument(f.Context(), f.space, tokens)
	if err != nil {
		f.Fatal(err)
	}
	job := worker.NewIngest(f.id, d, worker.IngestOptions{Tokens: len(tokens), Submitted: time.Now()})
	if _, err := q.Submit(f.Context(), job); err != nil {
		f.Fatal(err)
	}
	return job.ID
}

// done waits for a job and returns its receipt and its story.
func (f *fleet) done(q queue.Queue, id string) (r worker.Receipt, story []queue.Event) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 3*time.Minute)
	defer cancel()
	err := q.Follow(ctx, id, func(e queue.Event) bool {
		story = append(story, e)
		return !e.Type.Final()
	})
	if err != nil {
		f.Fatal(err)
	}
	s, err := q.Status(ctx, id)
	if err != nil || s.State != queue.Done {
		f.Fatalf("job %s is %s with %+v: %v", id, s.State, s.Dead, err)
	}
	if err := json.Unmarshal(s.Result, &r); err != nil {
		f.Fatal(err)
	}
	return r, story
}

// A worker that is cut off from NATS for longer than its delivery stands computes on, then can say nothing: the job is
// another's, and its word is not in the story. When the network is back it goes on with other jobs.
func TestCutOffWorkerIsFenced(t *testing.T) {
	f := newFleet(t)
	f.ackWait = cutWait
	u, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	network := newProxy(t, u.Host)
	const grid = enginetest.ToyGrid
	reached, release := make(chan struct{}), make(chan struct{})
	slow := &enginetest.Toy{}
	slow.BeforePrefill = func(_ context.Context, call int, _ []engine.Token) error {
		if call == 3 {
			close(reached)
			<-release // whatever becomes of the delivery: a device does not stop
		}
		return nil
	}
	client := f.queue(f.url)
	cut := f.queue(network.url())
	f.run(cut, slow, "cut off")
	id := f.submit(client, prose(5*grid+1))
	<-reached
	network.set(true)
	f.run(f.queue(f.url), &enginetest.Toy{}, "the other")
	receipt, story := f.done(client, id)
	if receipt.Host != "the other" || receipt.Tokens.Restored < grid {
		t.Errorf("receipt is %+v", receipt)
	}
	network.set(false)
	close(release)
	// The one that was cut off comes back: it takes jobs again, and its late work changes nothing.
	for n := 1; slow.Prefills() < 6; n++ {
		if n > 200 {
			t.Fatal("the worker that was cut off takes no more jobs")
		}
		f.done(client, f.submit(client, prose(7*grid + n)[n:]))
	}
	after, again := f.done(client, id)
	if after.Host != receipt.Host || after.Handle != receipt.Handle || len(again) != len(story) {
		t.Errorf("after the network was back the receipt is %+v, and the story has %d events, not %d", after, len(again), len(story))
	}
	second := false
	for _, e := range again {
		second = second || e.Attempt > 1
		if second && e.Attempt == 1 {
			t.Errorf("the worker that was cut off said %s after it had lost the job", e.Type)
		}
	}
}

// A network that is away for less than a delivery stands costs nothing: the same attempt ends the job.
func TestShortPartition(t *testing.T) {
	f := newFleet(t)
	f.ackWait = cutWait
	u, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	network := newProxy(t, u.Host)
	const grid = enginetest.ToyGrid
	toy := &enginetest.Toy{}
	toy.BeforePrefill = func(_ context.Context, call int, _ []engine.Token) error {
		if call == 3 {
			network.set(true)
			time.AfterFunc(200*time.Millisecond, func() { network.set(false) })
		}
		return nil
	}
	client := f.queue(f.url)
	f.run(f.queue(network.url()), toy, "cut off")
	receipt, _ := f.done(client, f.submit(client, prose(4*grid)))
	if receipt.Tokens.Total != 4*grid {
		t.Errorf("receipt is %+v", receipt)
	}
}

// Two workers with documents that begin alike: the one that comes second to a cell waits for it and reuses it.
func TestSharedPrefixIsComputedOnce(t *testing.T) {
	f := newFleet(t)
	const grid, cells = enginetest.ToyGrid, 6
	slowly := func(context.Context, int, []engine.Token) error {
		time.Sleep(5 * time.Millisecond) // so that the two are at it together
		return nil
	}
	client := f.queue(f.url)
	shared := prose(cells * grid)
	one := f.submit(client, append(append([]int32{}, shared...), 5, 6, 7))
	two := f.submit(client, append(append([]int32{}, shared...), 8, 9))
	a, b := &enginetest.Toy{BeforePrefill: slowly}, &enginetest.Toy{BeforePrefill: slowly}
	f.run(f.queue(f.url), a, "a")
	f.run(f.queue(f.url), b, "b")
	for _, id := range []string{one, two} {
		f.done(client, id)
	}
	if n := a.Prefills() + b.Prefills(); n != cells+2 { // and the end of each
		t.Errorf("%d chunks were computed, %d by one worker and %d by the other, where %d differ", n, a.Prefills(), b.Prefills(), cells+2)
	}
}
