package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"lector/queue"
)

// maxLease keeps a lease that is held well away from the age at which the bucket drops it.
const maxLease = leaseAge / 2

// leaseValue is what the bucket holds of a lease.
type leaseValue struct {
	Holder  string        `json:"holder"`  // one Acquire, not one process
	Expires time.Time     `json:"expires"` // by the holder's clock, for people
	TTL     time.Duration `json:"ttl"`
}

// lease is a claim on a name; the revision of the bucket fences it.
type lease struct {
	q      *Queue
	name   string
	holder string
	ttl    time.Duration

	mu       sync.Mutex
	revision uint64
}

// Acquire claims name for ttl, or takes it over from somebody whose time is up. Clocks of hosts differ, and jump: only the
// server's counts, for when a claim was written and for what the time is now.
func (q *Queue) Acquire(ctx context.Context, name string, ttl time.Duration) (queue.Lease, error) {
	if ttl <= 0 || ttl > maxLease {
		return nil, fmt.Errorf("acquire lease %s for %v: a lease lasts at most %v", name, ttl, maxLease)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	l := &lease{q: q, name: name, holder: nuid.Next(), ttl: ttl}
	for {
		b, err := l.value()
		if err != nil {
			return nil, err
		}
		l.revision, err = q.leases.Create(call, name, b)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return nil, q.fail(ctx, err, "acquire lease %s", name)
		}
		err = l.takeOver(call, b)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, queue.ErrHeld):
			return nil, err
		case !errors.Is(err, jetstream.ErrKeyNotFound) && !isConflict(err):
			return nil, q.fail(ctx, err, "acquire lease %s", name)
		} // given back or taken meanwhile: look again
	}
}

// takeOver replaces a claim that has expired.
func (l *lease) takeOver(call context.Context, b []byte) error {
	entry, err := l.q.leases.Get(call, l.name)
	if err != nil {
		return err
	}
	var held leaseValue
	if err := json.Unmarshal(entry.Value(), &held); err != nil {
		return fmt.Errorf("decode lease %s: %w", l.name, err)
	}
	now, err := l.q.serverTime(call)
	if err != nil {
		return err
	}
	if now.Before(entry.Created().Add(held.TTL)) {
		return fmt.Errorf("acquire lease %s: %w", l.name, queue.ErrHeld)
	}
	l.revision, err = l.q.leases.Update(call, l.name, b, entry.Revision())
	return err
}

func (l *lease) value() ([]byte, error) {
	b, err := json.Marshal(leaseValue{l.holder, l.q.cfg.Clock().UTC().Add(l.ttl), l.ttl})
	if err != nil {
		return nil, fmt.Errorf("encode lease %s: %w", l.name, err)
	}
	return b, nil
}

// Renew gives the claim another ttl; queue.ErrLost when somebody else wrote since. An expired claim that nobody took
// can be renewed.
func (l *lease) Renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	call, cancel := l.q.call(ctx)
	defer cancel()
	b, err := l.value()
	if err != nil {
		return err
	}
	for {
		revision, err := l.q.leases.Update(call, l.name, b, l.revision)
		if err == nil {
			l.revision = revision
			return nil
		}
		if !isConflict(err) {
			return l.q.fail(ctx, err, "renew lease %s", l.name)
		}
		if err := l.refresh(ctx, call); err != nil {
			return err
		}
	}
}

// refresh reads the revision anew: the answer to a write of our own may have been lost.
func (l *lease) refresh(ctx, call context.Context) error {
	entry, err := l.q.leases.Get(call, l.name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("renew lease %s: %w", l.name, queue.ErrLost)
	}
	if err != nil {
		return l.q.fail(ctx, err, "renew lease %s", l.name)
	}
	var held leaseValue
	if err := json.Unmarshal(entry.Value(), &held); err != nil {
		return fmt.Errorf("decode lease %s: %w", l.name, err)
	}
	if held.Holder != l.holder {
		return fmt.Errorf("renew lease %s: %w", l.name, queue.ErrLost)
	}
	l.revision = entry.Revision()
	return nil
}

// Release gives the claim back if it is still ours.
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	call, cancel := l.q.call(ctx)
	defer cancel()
	for {
		err := l.q.leases.Delete(call, l.name, jetstream.LastRevision(l.revision))
		if err == nil {
			return nil
		}
		if !isConflict(err) {
			return l.q.fail(ctx, err, "release lease %s", l.name)
		}
		if err := l.refresh(ctx, call); errors.Is(err, queue.ErrLost) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
