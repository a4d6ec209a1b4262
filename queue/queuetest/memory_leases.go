package queuetest

import (
	"context"
	"fmt"
	"time"

	"lector/queue"
)

// claim is a lease that stands; a taker of an expired one gets a revision of its own.
type claim struct {
	revision uint64
	expires  time.Time
}

type lease struct {
	m        *Memory
	name     string
	ttl      time.Duration
	revision uint64
}

// Acquire claims name for ttl, or takes it over from somebody whose time is up.
func (m *Memory) Acquire(ctx context.Context, name string, ttl time.Duration) (queue.Lease, error) {
	l := &lease{m: m, name: name, ttl: ttl}
	err := m.do(ctx, "Acquire", name, func() error {
		now := m.clock.Now()
		if c := m.state.leases[name]; c != nil && now.Before(c.expires) {
			return fmt.Errorf("acquire lease %s: %w", name, queue.ErrHeld)
		}
		l.revision = m.state.next()
		m.state.leases[name] = &claim{l.revision, now.Add(ttl)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Renew gives the claim another ttl. An expired claim that nobody took can be renewed.
func (l *lease) Renew(ctx context.Context) error {
	return l.m.do(ctx, "Renew", l.name, func() error {
		c := l.m.state.leases[l.name]
		if c == nil || c.revision != l.revision {
			return fmt.Errorf("renew lease %s: %w", l.name, queue.ErrLost)
		}
		c.expires = l.m.clock.Now().Add(l.ttl)
		return nil
	})
}

// Release gives the claim back if it is still ours.
func (l *lease) Release(ctx context.Context) error {
	return l.m.do(ctx, "ReleaseLease", l.name, func() error {
		if c := l.m.state.leases[l.name]; c != nil && c.revision == l.revision {
			delete(l.m.state.leases, l.name)
		}
		return nil
	})
}
