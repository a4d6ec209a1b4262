package bench

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	handoffs    = 2000                  // there and back, of one sample
	handoffTurn = 20 * time.Millisecond // a sample that takes longer says nothing: its threads share a core
)

// handed is a number that one goroutine hands to another, with lines of memory of its own.
type handed struct {
	n atomic.Uint64
	_ [120]byte
}

// MeasureHandoff fills c.Handoff with how long a number takes from one goroutine to another that waits for it: what a step of decoding,
// which hands over after every operation, cannot be faster than. It depends on how far apart the two cores are, which changes from run to
// run where a machine is virtual. One worker hands nothing over.
func (c *Ceiling) MeasureHandoff() {
	if min(c.Workers, runtime.GOMAXPROCS(0)) < 2 {
		return
	}
	for range ceilingRepeats {
		if took := handoff(); took < handoffTurn {
			c.Handoff = append(c.Handoff, took.Seconds()/(2*handoffs))
		}
	}
}

// handoff is how long handing a number there and back takes, many times.
func handoff() time.Duration {
	lines := new([2]handed)
	there, back := &lines[0].n, &lines[1].n
	go func() {
		for i := uint64(1); i <= handoffs; i++ {
			await(there, i)
			back.Store(i)
		}
	}()
	there.Store(1)
	await(back, 1) // the other has a core now
	start := time.Now()
	for i := uint64(2); i <= handoffs; i++ {
		there.Store(i)
		await(back, i)
	}
	return time.Since(start)
}

// await returns when a number is there.
func await(at *atomic.Uint64, n uint64) {
	for spun := 0; at.Load() != n; spun++ {
		if spun > 1<<14 { // the other has no core
			runtime.Gosched()
		}
	}
}
