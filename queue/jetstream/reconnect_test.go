package jetstream_test

import (
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/queue/queuetest"
)

// outside starts a server that is not ours, as a fleet has it.
func outside(t *testing.T, dir string, port int) (*server.Server, int) {
	t.Helper()
	s := must(server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true}))(t)
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("server is not ready")
	}
	stop := func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	t.Cleanup(stop)
	u := must(url.Parse(s.ClientURL()))(t)
	return s, must(strconv.Atoi(u.Port()))(t)
}

// Whoever waits goes on waiting while the server is away.
func TestReconnect(t *testing.T) {
	dir := t.TempDir()
	srv, port := outside(t, dir, server.RANDOM_PORT)
	q := must(jetstream.Open(t.Context(), jetstream.Config{
		URL: srv.ClientURL(), Create: true, Options: []nats.Option{nats.ReconnectWait(10 * time.Millisecond)},
		Model: queuetest.Model, AckWait: ackWait, Poll: 10 * time.Millisecond, Timeout: 5 * time.Second,
	}))(t)
	defer q.Close()
	if err := q.Publish(t.Context(), queue.Event{Job: "a", First: 1}); err != nil {
		t.Fatal(err)
	}
	events := make(chan int, 10)
	ended := make(chan error, 2)
	go func() {
		ended <- q.Follow(t.Context(), "a", func(e queue.Event) bool {
			events <- e.First
			return e.First < 2
		})
	}()
	go func() {
		d, err := q.Next(t.Context())
		if err == nil {
			err = d.Done(t.Context())
		}
		ended <- err
	}()
	if n := <-events; n != 1 {
		t.Fatalf("first event is %d", n)
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	time.Sleep(50 * time.Millisecond) // both meet a closed connection, if the machine lets them
	outside(t, dir, port)
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := q.Submit(t.Context(), job("a"))
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if err := q.Publish(t.Context(), queue.Event{Job: "a", First: 2}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
