package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/queue"
	"lector/worker"
)

func TestFateOf(t *testing.T) {
	for _, c := range []struct {
		err     error
		attempt int
		action  worker.Action
		class   string
	}{
		{nil, 1, worker.Finish, "done"},
		{queue.ErrLost, 1, worker.Abandon, "lost"},
		{errors.Join(context.Canceled, queue.ErrLost), 9, worker.Abandon, "lost"},
		{queue.ErrClosed, 9, worker.Stop, "queue-closed"},
		{cache.ErrDiverged, 1, worker.Alarm, "diverged"},
		{cache.ErrIncompatible, 1, worker.Reject, "incompatible"},
		{cache.ErrCorrupt, 1, worker.Reject, "corrupt"},
		{cache.ErrSealed, 1, worker.Reject, "sealed"},
		{errors.Join(cache.ErrNotFound, cache.ErrSealed), 1, worker.Reject, "sealed"},
		{cache.ErrExpired, 1, worker.Reject, "expired"},
		{cache.ErrNotFound, 1, worker.Reject, "not-found"},
		{cache.ErrName, 1, worker.Reject, "bad-input"},
		{worker.ErrInput, 1, worker.Reject, "bad-input"},
		{engine.ErrEmpty, 1, worker.Reject, "bad-input"},
		{engine.ErrToken, 1, worker.Reject, "bad-input"},
		{engine.ErrTooLong, 1, worker.Reject, "bad-input"},
		{engine.ErrNoHead, 1, worker.Reject, "bad-input"},
		{engine.ErrNumeric, 1, worker.Reject, "numeric"},
		{engine.ErrState, 1, worker.Reject, "state"},
		{engine.ErrDevice, 1, worker.Retry, "device"},
		{engine.ErrStorage, 1, worker.Retry, "storage"},
		{engine.ErrMemory, 1, worker.Retry, "memory"},
		{engine.ErrMemory, 5, worker.Reject, "attempts"},
		{queue.ErrQuota, 9, worker.Wait, "quota"},
		{engine.ErrBroken, 1, worker.Retry, "error"},
		{queue.ErrFull, 1, worker.Retry, "error"},
		{context.DeadlineExceeded, 1, worker.Retry, "timeout"},
		{errors.New("what is this"), 4, worker.Retry, "error"},
		{errors.New("what is this"), 5, worker.Reject, "attempts"},
		{engine.ErrDevice, 6, worker.Reject, "attempts"},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("read tokens [0, 8): %w", err)
		}
		got := worker.FateOf(err, c.attempt, 1, worker.Config{})
		if got.Action != c.action || got.Class != c.class {
			t.Errorf("attempt %d with %v: %+v, want action %d, class %s", c.attempt, c.err, got, c.action, c.class)
		}
		if (got.After > 0) != (got.Action == worker.Retry || got.Action == worker.Wait) {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	c := worker.Config{Attempts: 100}
	broken := errors.New("broken")
	for attempt := 1; attempt < 100; attempt++ {
		limit := min(time.Second<<min(attempt-1, 20), 5*time.Minute)
		spread := map[time.Duration]bool{}
		for jitter := range uint64(20) {
			after := worker.FateOf(broken, attempt, jitter, c).After
			if after < limit/2 || after > limit {
				t.Errorf("attempt %d comes after %v, want %v to %v", attempt+1, after, limit/2, limit)
			}
			if again := worker.FateOf(broken, attempt, jitter, c).After; again != after {
				t.Errorf("attempt %d comes after %v or %v", attempt+1, after, again)
			}
			spread[after] = true
		}
		if len(spread) < 15 {
			t.Errorf("20 jobs come back at %d times", len(spread))
		}
	}
}

// What lacks memory is not tried again before some may be free: all attempts together take many minutes.
func TestMemoryIsWaitedFor(t *testing.T) {
	whole := time.Duration(0)
	for attempt := 1; attempt < 5; attempt++ {
		whole += worker.FateOf(engine.ErrMemory, attempt, 3, worker.Config{}).After
	}
	if whole < 10*time.Minute {
		t.Errorf("a job that lacks memory is a dead letter after %v", whole)
	}
}

func TestConfigValidate(t *testing.T) {
	for name, c := range map[string]worker.Config{
		"attempts": {Attempts: -1}, "ack wait": {AckWait: -1}, "retry": {RetryMin: time.Hour}, "capacity": {Capacity: -1}, "vocabulary": {Vocabulary: -1},
	} {
		if c.Validate() == nil {
			t.Errorf("%s: %+v is valid", name, c)
		}
	}
	if err := (worker.Config{}).Validate(); err != nil {
		t.Error(err)
	}
}
