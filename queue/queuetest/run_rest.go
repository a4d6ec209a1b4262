package queuetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"lector/queue"
)

func events(f *fixture) {
	f.publish("e", 1, 0, 1, 2)
	f.publish("other", 1, 7)
	f.publish("e", 2, 3)
	f.equal("events from the start", f.follow("e", 4), []int{0, 1, 2, 3})
	f.equal("stopped after two", f.follow("e", 2), []int{0, 1})
	f.equal("the other job's", f.follow("other", 1), []int{7})

	ctx, cancel := context.WithTimeout(f.ctx, f.AckWait/4)
	defer cancel()
	err := f.Queue.Follow(ctx, "silent", func(e queue.Event) bool {
		f.Errorf("event %+v of a job that has none", e)
		return true
	})
	f.is(err, context.DeadlineExceeded)
}

func followLive(f *fixture) {
	f.publish("e", 1, 0, 1)
	got := make(chan int, 10)
	done := make(chan error, 1)
	go func() {
		done <- f.Queue.Follow(f.ctx, "e", func(e queue.Event) bool {
			got <- e.First
			return e.First < 4
		})
	}()
	for want := range 5 {
		if want >= 2 {
			f.publish("e", 1, want)
		}
		select {
		case n := <-got:
			if n != want {
				f.Fatalf("followed event %d, not %d", n, want)
			}
		case <-f.ctx.Done():
			f.Fatalf("event %d did not come", want)
		}
	}
	f.ok(<-done)
}

func handle(f *fixture) {
	first, err := f.Queue.PublishHandle(f.ctx, "h", []byte("one"))
	f.ok(err)
	for _, body := range []string{"two", "one"} {
		standing, err := f.Queue.PublishHandle(f.ctx, "h", []byte(body))
		f.ok(err)
		if string(first) != "one" || string(standing) != "one" {
			f.Fatalf("handles that stand: %q, then %q", first, standing)
		}
	}
	body, err := f.Queue.Handle(f.ctx, "h")
	f.ok(err)
	if string(body) != "one" {
		f.Fatalf("handle is %q", body)
	}
}

func leases(f *fixture) {
	long := 100 * f.AckWait
	l, err := f.Queue.Acquire(f.ctx, "node.1", long)
	f.ok(err)
	_, err = f.Queue.Acquire(f.ctx, "node.1", long)
	f.is(err, queue.ErrHeld)
	other, err := f.Queue.Acquire(f.ctx, "node.2", long)
	f.ok(err)
	f.ok(l.Renew(f.ctx))
	f.ok(l.Renew(f.ctx))
	f.ok(l.Release(f.ctx))
	f.ok(l.Release(f.ctx))
	f.is(l.Renew(f.ctx), queue.ErrLost)
	again, err := f.Queue.Acquire(f.ctx, "node.1", long)
	f.ok(err)
	f.is(l.Renew(f.ctx), queue.ErrLost)
	f.ok(l.Release(f.ctx)) // harmless: not ours any more
	f.ok(again.Renew(f.ctx))
	f.ok(other.Renew(f.ctx))
}

func leaseExpires(f *fixture) {
	ttl := f.AckWait
	old, err := f.Queue.Acquire(f.ctx, "n", ttl)
	f.ok(err)
	f.Pass(ttl * 2 / 3)
	f.ok(old.Renew(f.ctx))
	f.Pass(ttl / 2)
	_, err = f.Queue.Acquire(f.ctx, "n", ttl)
	f.is(err, queue.ErrHeld) // renewed
	f.Pass(ttl)
	now, err := f.Queue.Acquire(f.ctx, "n", 100*ttl)
	f.ok(err)
	f.is(old.Renew(f.ctx), queue.ErrLost)
	f.ok(old.Release(f.ctx))
	f.ok(now.Renew(f.ctx))
	_, err = f.Queue.Acquire(f.ctx, "n", ttl)
	f.is(err, queue.ErrHeld)
}

// restart is an owner that was killed with a job in hand, one waiting, one to be retried, and one finished.
func restart(f *fixture) {
	f.submit(ingestJob("done"))
	f.finish(f.next("done", 1))
	f.submit(ingestJob("retried"))
	f.ok(f.next("retried", 1).Retry(f.ctx, 1000*f.AckWait))
	f.submit(ingestJob("held"))
	held := f.next("held", 1)
	f.submit(ingestJob("waiting"))
	f.publish("held", 1, 0, 1)
	_, err := f.Queue.PublishHandle(f.ctx, "done", []byte("body"))
	f.ok(err)
	_, err = f.Queue.Acquire(f.ctx, "node", 1000*f.AckWait)
	f.ok(err)

	f.Queue = f.Restart()
	if held.Extend(f.ctx) == nil {
		f.Fatal("a delivery of the earlier owner was extended")
	}
	_, err = f.Queue.Acquire(f.ctx, "node", f.AckWait)
	f.ok(err)
	if s := f.state("done", queue.Done, 1); string(s.Result) != `{"n":1}` {
		f.Fatalf("result after the restart is %s", s.Result)
	}
	f.state("waiting", queue.Queued, 0)
	body, err := f.Queue.Handle(f.ctx, "done")
	f.ok(err)
	if string(body) != "body" {
		f.Fatalf("handle after the restart is %q", body)
	}
	f.equal("events after the restart", f.follow("held", 2), []int{0, 1})
	f.submit(ingestJob("held")) // adopts
	// Whether an attempt that died with the queue counts is the implementation's word.
	attempts := map[string][]int{"retried": {2}, "held": {1, 2}, "waiting": {1}}
	for len(attempts) > 0 {
		d, err := f.Queue.Next(f.ctx)
		f.ok(err)
		if want := attempts[d.Job().ID]; !slices.Contains(want, d.Attempt()) {
			f.Fatalf("after the restart job %s came as attempt %d, not %v", d.Job().ID, d.Attempt(), want)
		}
		delete(attempts, d.Job().ID)
		f.finish(d)
	}
	f.none()
}

func contexts(f *fixture) {
	f.submit(ingestJob("a"))
	d := f.next("a", 1)
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	for name, call := range map[string]func() error{
		"Next":     func() error { _, err := f.Queue.Next(ctx); return err },
		"Submit":   func() error { _, err := f.Queue.Submit(ctx, ingestJob("b")); return err },
		"Status":   func() error { _, err := f.Queue.Status(ctx, "a"); return err },
		"Extend":   func() error { return d.Extend(ctx) },
		"Done":     func() error { return d.Done(ctx) },
		"Publish":  func() error { return f.Queue.Publish(ctx, queue.Event{Job: "a"}) },
		"Follow":   func() error { return f.Queue.Follow(ctx, "a", func(queue.Event) bool { return true }) },
		"Handle":   func() error { _, err := f.Queue.PublishHandle(ctx, "a", nil); return err },
		"Acquire":  func() error { _, err := f.Queue.Acquire(ctx, "n", time.Minute); return err },
		"Retry":    func() error { return d.Retry(ctx, 0) },
		"SetState": func() error { return f.Queue.SetStatus(ctx, queue.Status{Job: d.Job(), State: queue.Done}) },
	} {
		f.Run(name, func(t *testing.T) {
			if err := call(); !errors.Is(err, context.Canceled) {
				t.Fatalf("with a cancelled context: %v", err)
			}
		})
	}
	f.finish(d) // none of them had an effect
}

func closing(f *fixture) {
	f.submit(ingestJob("a"))
	d := f.next("a", 1)
	ended := make(chan error, 2)
	go func() { _, err := f.Queue.Next(f.ctx); ended <- err }()
	go func() { ended <- f.Queue.Follow(f.ctx, "a", func(queue.Event) bool { return true }) }()
	f.publish("a", 1, 0)
	f.ok(f.Queue.Close())
	for range 2 {
		f.is(<-ended, queue.ErrClosed)
	}
	f.is(d.Extend(f.ctx), queue.ErrClosed)
	f.is(f.Queue.SetStatus(f.ctx, queue.Status{Job: d.Job(), State: queue.Done}), queue.ErrClosed)
	_, err := f.Queue.Submit(f.ctx, ingestJob("b"))
	f.is(err, queue.ErrClosed)
	_, err = f.Queue.Next(f.ctx)
	f.is(err, queue.ErrClosed)
	f.is(f.Queue.Publish(f.ctx, queue.Event{Job: "a"}), queue.ErrClosed)
	f.ok(f.Queue.Close())
}
