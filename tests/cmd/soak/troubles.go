package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// troubles come one after the other, each to one process or node.
type troubles struct {
	fleet  *fleet
	random *rand.Rand
	count  map[string]int
	next   []int // kinds that are still to come in this round, in a random order
}

func newTroubles(f *fleet, seed uint64) *troubles {
	return &troubles{fleet: f, random: rand.New(rand.NewPCG(seed, 2)), count: map[string]int{}}
}

// total is how many there were.
func (t *troubles) total() (n int) {
	for _, c := range t.count {
		n += c
	}
	return n
}

// run makes trouble until the context ends, and leaves everything whole.
func (t *troubles) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.between(1, 4)):
		}
		if err := t.one(ctx); err != nil {
			return err
		}
	}
}

// between is a time of some seconds.
func (t *troubles) between(low, high float64) time.Duration {
	return time.Duration((low + t.random.Float64()*(high-low)) * float64(time.Second))
}

// one makes one, and mends it.
func (t *troubles) one(ctx context.Context) error {
	w := t.fleet.workers[t.random.IntN(workers)]
	kinds := []struct {
		name string
		make func() error
	}{
		{"killed", func() error {
			w.kill()
			t.last(ctx, 0.2, 2)
			return w.start()
		}},
		{"stopped for a while", func() error {
			w.signal(syscall.SIGSTOP)
			t.last(ctx, 1, 2*ackWait.Seconds())
			w.signal(syscall.SIGCONT)
			return nil
		}},
		{"cut from NATS", func() error { return t.cut(ctx, w.queue) }},
		{"cut from S3", func() error { return t.cut(ctx, w.store) }},
		{"cut from both", func() error { return t.cut(ctx, w.queue, w.store) }},
		{"drained", func() error {
			w.signal(syscall.SIGTERM)
			select {
			case <-w.over():
			case <-time.After(20 * time.Second):
				t.count["killed while it drained"]++
				w.kill()
			}
			return w.start()
		}},
		{"NATS node restarted", func() error { return t.fleet.restartNode(t.random.IntN(nodes), t.between(0.5, 4)) }},
	}
	if len(t.next) == 0 {
		t.next = t.random.Perm(len(kinds))
	}
	k := kinds[t.next[0]]
	t.next = t.next[1:]
	t.count[k.name]++
	if err := k.make(); err != nil {
		return fmt.Errorf("%s, %s: %w", w.name, k.name, err)
	}
	return t.restart()
}

// restart starts workers that ended by themselves, as a supervisor does.
func (t *troubles) restart() error {
	for _, w := range t.fleet.workers {
		select {
		case <-w.over():
			t.count["ended by itself"]++
			if err := w.start(); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

func (t *troubles) cut(ctx context.Context, wires ...*wire) error {
	for _, w := range wires {
		w.sever()
	}
	t.last(ctx, 0.5, 3*ackWait.Seconds()/2)
	for _, w := range wires {
		w.mend()
	}
	return nil
}

// last lets a trouble last.
func (t *troubles) last(ctx context.Context, low, high float64) {
	select {
	case <-ctx.Done():
	case <-time.After(t.between(low, high)):
	}
}
