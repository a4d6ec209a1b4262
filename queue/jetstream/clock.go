package jetstream

import (
	"context"
	"sync"
	"time"
)

// resync is after how long the server's clock is looked at again: a host that slept does not know for how long.
const resync = 30 * time.Second

// clock follows the server's clock. Clocks of hosts differ and jump, and what is decided by the time must not: between two
// looks the host's own clock counts on, by the part of it that does not jump.
type clock struct {
	mu     sync.Mutex
	server time.Time // at a moment
	at     time.Time // that moment, with the host's monotonic clock
}

func (c *clock) set(server time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.at = server, time.Now()
}

func (c *clock) now() (now time.Time, old bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.at)
	return c.server.Add(passed).UTC(), passed > resync
}

// Now is the time by the server's clock, as it was known last.
func (q *Queue) Now() time.Time {
	now, _ := q.clock.now()
	return now
}

// nowFor is Now for a decision: it looks at the server's clock where the last look is old.
func (q *Queue) nowFor(ctx context.Context) (time.Time, error) {
	now, old := q.clock.now()
	if !old {
		return now, nil
	}
	call, cancel := q.call(ctx)
	defer cancel()
	if _, err := q.serverTime(call); err != nil {
		return now, q.fail(ctx, err, "read the clock of the server")
	}
	return q.Now(), nil
}

// serverTime is the time by the clock that dates the leases.
func (q *Queue) serverTime(call context.Context) (time.Time, error) {
	s, err := q.js.Stream(call, "KV_"+leasesBucket)
	if err != nil {
		return time.Time{}, err
	}
	now := s.CachedInfo().TimeStamp
	q.clock.set(now)
	return now, nil
}
