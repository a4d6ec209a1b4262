package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lector/queue"
)

// keepalive extends a delivery, and renews the claims held for it, while its work goes on. When the delivery is
// lost it cancels the work, with queue.ErrLost as the cause.
type keepalive struct {
	delivery queue.Delivery
	wait     time.Duration // the queue's redelivery time
	alarms

	mu     sync.Mutex // guards what follows
	claims map[string]queue.Lease

	ended  chan struct{} // closed when somebody wants the job to end
	ending sync.Once

	dropping sync.WaitGroup // claims on their way back

	cancel  context.CancelFunc
	stopped chan struct{}
}

// alarms are what a keepalive calls.
type alarms struct {
	lost      context.CancelCauseFunc // the delivery is lost
	claimLost func()                  // a claim is lost
}

// startKeepalive begins the heartbeats, which go on until stop.
func startKeepalive(ctx context.Context, d queue.Delivery, wait time.Duration, on alarms) *keepalive {
	ctx, cancel := context.WithCancel(ctx)
	k := &keepalive{
		delivery: d, wait: wait, alarms: on, claims: map[string]queue.Lease{}, ended: make(chan struct{}),
		cancel: cancel, stopped: make(chan struct{}),
	}
	go k.run(ctx)
	return k
}

// stop ends the heartbeats and returns when none is on its way.
func (k *keepalive) stop() {
	k.cancel()
	<-k.stopped
	k.dropping.Wait()
}

func (k *keepalive) run(ctx context.Context) {
	defer close(k.stopped)
	beat := time.NewTicker(k.wait / 3)
	defer beat.Stop()
	good := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-k.delivery.Nudged():
		}
		err := k.extend(ctx)
		if errors.Is(err, queue.ErrCancelled) {
			k.end()
			err = nil // the delivery is ours still
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			good = time.Now()
		case errors.Is(err, queue.ErrLost):
			k.lost(fmt.Errorf("extend delivery of job %s: %w", k.delivery.Job().ID, err))
			return
		case time.Since(good) >= k.wait:
			// The queue has not heard from us for so long that it has given the job to somebody else.
			k.lost(fmt.Errorf("extend delivery of job %s for %v: %w (%v)", k.delivery.Job().ID, k.wait, queue.ErrLost, err))
			return
		}
		k.renew(ctx)
	}
}

func (k *keepalive) extend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.wait/3)
	defer cancel()
	return k.delivery.Extend(ctx)
}

// end notes that somebody wants the job to end.
func (k *keepalive) end() { k.ending.Do(func() { close(k.ended) }) }

// cancelled says that somebody wants the job to end.
func (k *keepalive) cancelled() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// renew keeps the claims. One that is lost is let go: a second worker on the same cell writes the same bytes, so
// that costs its time and nothing else.
func (k *keepalive) renew(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, l := range k.claims {
		if err := l.Renew(ctx); errors.Is(err, queue.ErrLost) {
			delete(k.claims, name)
			k.claimLost()
		}
	}
}

// hold renews a claim with every heartbeat from now on.
func (k *keepalive) hold(name string, l queue.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claims[name] = l
}

// dropSoon gives a claim back; stop waits until that is done. One that cannot be given back ends by itself.
func (k *keepalive) dropSoon(ctx context.Context, name string) {
	k.mu.Lock()
	l, held := k.claims[name]
	delete(k.claims, name)
	k.mu.Unlock()
	if held {
		k.dropping.Go(func() { _ = l.Release(ctx) })
	}
}
