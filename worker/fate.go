package worker

import (
	"context"
	"errors"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/queue"
)

var (
	// ErrInput refuses an order that no worker can carry out; the message says what to change.
	ErrInput = errors.New("order cannot be carried out")
	// errDrain says that the worker is to end and the work is at a place where it can stop.
	errDrain = errors.New("worker drains")
	// errAttempts says that a job was delivered more often than it may be tried.
	errAttempts = errors.New("too many attempts")
	// errTenant says that the job is for workers of another tenant.
	errTenant = errors.New("this worker serves another tenant")
	// errPanic says that a job met a fault of the program: met again, it would be met again.
	errPanic = errors.New("the job made the worker panic")
)

// ClassDone is the class of what went well.
const ClassDone = "done"

// Action is what happens to a delivery after its work.
type Action uint8

const (
	// Finish acknowledges: the work is done, or was done before.
	Finish Action = iota
	// Retry gives the job back for another attempt after a while.
	Retry
	// Release gives the job back at once, uncounted.
	Release
	// Reject makes the job a dead letter.
	Reject
	// Abandon leaves the delivery alone: it is somebody else's.
	Abandon
	// Stop ends the worker without settling: the queue is gone.
	Stop
	// Alarm makes the job a dead letter and ends the worker: what it computes cannot be trusted.
	Alarm
	// Wait gives the job back for a while, uncounted: others have what it needs just now.
	Wait
)

// Fate is an action with its reason.
type Fate struct {
	Action Action
	Class  string        // of the dead letter, and in events and logs
	After  time.Duration // Retry, Wait: until the next attempt
}

// FateOf maps an attempt's error to what happens next. attempt counts from 1; jitter is any number that differs
// between jobs. It is the only place where errors are classified.
func FateOf(err error, attempt int, jitter uint64, c Config) Fate {
	f := classify(err)
	c = c.withDefaults()
	if f.Action == Wait {
		f.After = waiting(jitter, c)
	}
	if f.Action != Retry {
		return f
	}
	if attempt >= c.Attempts {
		return Fate{Action: Reject, Class: "attempts"}
	}
	f.After = backoff(attempt, jitter, c)
	if f.Class == "disk" || f.Class == "memory" {
		f.After = backoff(64, jitter, c) // room does not come in seconds
	}
	return f
}

// classify knows nothing of attempts. More telling classes come first: a lost delivery explains a cancelled
// context, and a damaged object explains a state that does not fit.
func classify(err error) Fate {
	is := func(target error) bool { return errors.Is(err, target) }
	var end *endError
	switch {
	case err == nil:
		return Fate{Action: Finish, Class: ClassDone}
	case is(queue.ErrLost):
		return Fate{Action: Abandon, Class: "lost"}
	case errors.As(err, &end):
		return Fate{Action: Finish, Class: string(end.state)}
	case is(errDrain):
		return Fate{Action: Release, Class: "drain"}
	case is(queue.ErrClosed):
		return Fate{Action: Stop, Class: "queue-closed"}
	case is(cache.ErrDiverged):
		return Fate{Action: Alarm, Class: "diverged"}
	case is(errAttempts):
		return Fate{Action: Reject, Class: "attempts"}
	case is(errPanic):
		return Fate{Action: Reject, Class: "panic"}
	case is(errVanished):
		return Fate{Action: Retry, Class: "vanished"}
	case is(cache.ErrSealed):
		return Fate{Action: Reject, Class: "sealed"}
	case is(cache.ErrIncompatible):
		return Fate{Action: Reject, Class: "incompatible"}
	case is(cache.ErrCorrupt):
		return Fate{Action: Reject, Class: "corrupt"}
	case is(errProbe):
		return Fate{Action: Reject, Class: "probe"}
	case is(cache.ErrExpired):
		return Fate{Action: Reject, Class: "expired"}
	case is(cache.ErrNotFound):
		return Fate{Action: Reject, Class: "not-found"}
	case is(ErrInput), is(engine.ErrEmpty), is(engine.ErrToken), is(engine.ErrTooLong), is(engine.ErrNoHead), is(cache.ErrName):
		return Fate{Action: Reject, Class: "bad-input"}
	case is(engine.ErrNumeric):
		return Fate{Action: Reject, Class: "numeric"}
	case is(engine.ErrState):
		return Fate{Action: Reject, Class: "state"}
	case is(engine.ErrDevice):
		return Fate{Action: Retry, Class: "device"}
	case is(engine.ErrStorage):
		return Fate{Action: Retry, Class: "storage"} // another host reads its own copy
	case is(errFull):
		return Fate{Action: Wait, Class: "full"}
	case is(errTenant):
		return Fate{Action: Wait, Class: "tenant"} // for one that serves it
	case is(queue.ErrQuota):
		return Fate{Action: Wait, Class: "quota"}
	case is(engine.ErrMemory):
		return Fate{Action: Retry, Class: "memory"} // another host may have more
	case is(errDisk):
		return Fate{Action: Retry, Class: "disk"} // another host may have more
	case is(context.DeadlineExceeded), is(context.Canceled):
		return Fate{Action: Retry, Class: "timeout"}
	}
	return Fate{Action: Retry, Class: "error"}
}

// backoff doubles from the shortest to the longest time, and takes a random half of it off: jobs that failed
// together do not come back together. It is a pure function.
func backoff(attempt int, jitter uint64, c Config) time.Duration {
	d := c.RetryMax
	if shift := attempt - 1; shift < 32 && c.RetryMin < c.RetryMax>>shift {
		d = c.RetryMin << shift
	}
	u := unit(jitter^c.RetrySeed, uint64(attempt), 0)
	return d/2 + time.Duration(u*float64(d/2))
}

// waiting is how long a job waits for what others have. It says nothing of the job, so it does not grow; it is long
// enough for many jobs that wait to cost little.
func waiting(jitter uint64, c Config) time.Duration {
	d := max(c.RetryMax/20, c.RetryMin)
	return d/2 + time.Duration(unit(jitter^c.RetrySeed, 0, 1)*float64(d/2))
}
