package soft

import "sync"

// maxQueues is how many queues the race detector tells apart; with more, some count as one.
const maxQueues = 64

// clock says, for each queue, the number of its last launch that something comes after.
type clock [maxQueues]uint32

func (c *clock) join(other *clock) {
	for i, n := range other {
		c[i] = max(c[i], n)
	}
}

// stamp is who a launch is to the race detector.
type stamp struct {
	queue, number uint32
	visible       clock
}

// clocks keeps the order of launches on one device: what the host has seen, and the numbers given out.
type clocks struct {
	mu     sync.Mutex
	queues uint32
	last   clock // of each queue, the launch that has begun last
	seen   clock // by the host
}

// newQueue gives a queue its number.
func (c *clocks) newQueue() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues++
	return (c.queues - 1) % maxQueues
}

// next numbers a launch of a queue.
func (c *clocks) next(queue uint32) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[queue]++
	return c.last[queue]
}

// host is what the host has seen.
func (c *clocks) host() clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// hostSaw adds to what the host has seen: it has waited for this.
func (c *clocks) hostSaw(other *clock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.join(other)
}
