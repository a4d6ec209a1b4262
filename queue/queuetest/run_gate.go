package queuetest

import (
	"time"

	"lector/queue"
)

// pause is an operator who stops the queue while one job is being worked on and others wait.
func pause(f *fixture) {
	if p, err := f.Queue.Paused(f.ctx); err != nil || p != nil {
		f.Fatalf("a new queue is paused: %+v, %v", p, err)
	}
	f.ok(f.Queue.Unpause(f.ctx)) // harmless
	f.submit(ingestJob("running"))
	d := f.next("running", 1)
	want := queue.Pause{Since: time.Unix(1_700_000_000, 0).UTC(), Reason: "new disks", By: "ops"}
	f.ok(f.Queue.Pause(f.ctx, queue.Pause{Reason: "first word"}))
	f.ok(f.Queue.Pause(f.ctx, want))
	f.submit(ingestJob("waiting"))
	f.none()
	p, err := f.Queue.Paused(f.ctx)
	f.ok(err)
	if p == nil || !p.Since.Equal(want.Since) || p.Reason != want.Reason || p.By != want.By {
		f.Fatalf("the pause that stands is %+v", p)
	}
	f.ok(d.Extend(f.ctx))
	f.finish(d)
	got := make(chan error, 1)
	go func() {
		d, err := f.Queue.Next(f.ctx)
		if err == nil {
			err = d.Done(f.ctx)
		}
		got <- err
	}()
	f.ok(f.Queue.Unpause(f.ctx))
	f.ok(<-got)
	if p, err := f.Queue.Paused(f.ctx); err != nil || p != nil {
		f.Fatalf("after Unpause the queue is paused: %+v, %v", p, err)
	}
}
