package queuetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"lector/queue"
	"lector/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	queuetest.Run(t, func(t *testing.T) queuetest.Subject {
		c := queuetest.NewManual(time.Unix(1_700_000_000, 0))
		m := queuetest.NewMemory(c)
		m.SetAckWait(80 * time.Millisecond)
		return queuetest.Subject{
			Queue: m, AckWait: 80 * time.Millisecond, Pass: c.Advance,
			Restart: func() queue.Queue { return m.Restart() },
		}
	})
}

func job(id string) queue.Job {
	return queue.Job{
		Version: queue.JobVersion, ID: id, Kind: queue.Ingest, Model: "m", Priority: "normal",
		Ingest: &queue.IngestOrder{Document: "d", Tokens: 1},
	}
}

func submitted(t *testing.T, m *queuetest.Memory, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := m.Submit(t.Context(), job(id)); err != nil {
			t.Fatal(err)
		}
	}
}

func taken(t *testing.T, m *queuetest.Memory) queue.Delivery {
	t.Helper()
	d, err := m.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestExpire(t *testing.T) {
	m := queuetest.NewMemory(queuetest.NewManual(time.Unix(0, 0)))
	submitted(t, m, "a")
	if m.Expire("a") {
		t.Fatal("expired a job that nobody has")
	}
	old := taken(t, m)
	if !m.Expire("a") {
		t.Fatal("did not expire the delivery")
	}
	if err := old.Extend(t.Context()); !errors.Is(err, queue.ErrLost) {
		t.Fatalf("Extend of an expired delivery: %v", err)
	}
	if now := taken(t, m); now.Attempt() != 2 {
		t.Fatalf("attempt %d after the first expired", now.Attempt())
	}
}

func TestDuplicate(t *testing.T) {
	m := queuetest.NewMemory(nil)
	submitted(t, m, "a")
	d := taken(t, m)
	if err := m.SetStatus(t.Context(), queue.Status{Job: d.Job(), State: queue.Done}); err != nil {
		t.Fatal(err)
	}
	if err := d.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.Pending() != 0 || !m.Duplicate("a") || m.Pending() != 1 {
		t.Fatal("the finished job is not due once more")
	}
	if err := taken(t, m).Done(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFail(t *testing.T) {
	cut := errors.New("cut")
	m := queuetest.NewMemory(nil)
	m.Fail(queuetest.Rule{Op: "Submit", Name: "b", Nth: 2, Err: cut})
	m.Fail(queuetest.Rule{Op: "PublishHandle", Nth: 1, Err: cut, After: true})
	submitted(t, m, "a", "b")
	if _, err := m.Submit(t.Context(), job("b")); !errors.Is(err, cut) {
		t.Fatalf("second submit of b: %v", err)
	}
	submitted(t, m, "b")
	if n := m.Calls("Submit"); n != 4 {
		t.Fatalf("%d calls of Submit", n)
	}
	if _, err := m.PublishHandle(t.Context(), "a", []byte("x")); !errors.Is(err, cut) {
		t.Fatalf("publish whose answer is lost: %v", err)
	}
	if standing, err := m.PublishHandle(t.Context(), "a", []byte("y")); err != nil || string(standing) != "x" {
		t.Fatalf("handle that stands: %q, %v", standing, err)
	}
}

func TestLimit(t *testing.T) {
	m := queuetest.NewMemory(nil)
	m.SetLimit(1)
	submitted(t, m, "a", "a")
	if _, err := m.Submit(t.Context(), job("b")); !errors.Is(err, queue.ErrFull) {
		t.Fatalf("submit beyond the limit: %v", err)
	}
	if _, err := m.Status(t.Context(), "b"); !errors.Is(err, queue.ErrUnknown) {
		t.Fatalf("status of a job that was refused: %v", err)
	}
}

// A wall clock in a bubble is the bubble's, so a worker's keepalive can be tested without waiting for it.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.NewMemory(nil)
		submitted(t, m, "a")
		taken(t, m)
		start := time.Now()
		taken(t, m)
		if took := time.Since(start); took != queuetest.DefaultAckWait {
			t.Fatalf("redelivered after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}
