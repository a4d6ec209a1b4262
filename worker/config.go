package worker

import (
	"fmt"
	"time"
)

// Config holds a worker's settings. A zero field takes its default.
type Config struct {
	// AckWait is the queue's redelivery time: heartbeats come at a third of it, so that two may be lost. Default 30 s.
	AckWait time.Duration
	// LeaseTTL is how long a claim on a node outlives its worker. Default: AckWait.
	LeaseTTL time.Duration
	// WaitPoll is how often a claim that somebody else holds is tried again. Default 500 ms.
	WaitPoll time.Duration
	// DiskPoll is how often a disk that is nearly full is looked at again. Default 5 s.
	DiskPoll time.Duration
	// SettleTimeout bounds the settlement of a delivery, which goes on while the worker drains. Default 15 s.
	SettleTimeout time.Duration
	// Attempts is how often a job is tried before it is a dead letter. Default 5.
	Attempts int
	// RetryMin and RetryMax bound the time to the next attempt, which doubles from one to the other. Default 1 s and 5 min.
	RetryMin, RetryMax time.Duration
	// RetrySeed moves the jitter of that time; workers of one fleet may share it. Default 0.
	RetrySeed uint64
	// KeepSpread is how many recurrent states of a document are kept to branch from. Default 8.
	KeepSpread int
	// Capacity bounds the tokens of a sequence, document and prompt and text together. Default: the model's own limit.
	Capacity int
	// Memory bounds in bytes the states that Serve's attempts hold together; each is charged for its whole capacity and
	// waits until it fits. Default: the engine's own bound.
	Memory int64
	// ResultMessage is the most bytes of a resume's result that travel in messages; a larger one is told without its texts,
	// which are in the store. Default 400 KiB.
	ResultMessage int
	// StoreSync is what receipts and results that have a handle say of the store: "none" where it does not wait for the disk,
	// so that a power cut may take what they name. Default: nothing, it waits.
	StoreSync string
	// Vocabulary is the number of ids that have a token; the output head may have more rows, and an id from here
	// on is never chosen. Default: the rows of the head.
	Vocabulary int
}

// withDefaults fills zero fields.
func (c Config) withDefaults() Config {
	defaultTo(&c.AckWait, 30*time.Second)
	defaultTo(&c.LeaseTTL, c.AckWait)
	defaultTo(&c.WaitPoll, 500*time.Millisecond)
	defaultTo(&c.DiskPoll, 5*time.Second)
	defaultTo(&c.SettleTimeout, 15*time.Second)
	defaultTo(&c.Attempts, 5)
	defaultTo(&c.RetryMin, time.Second)
	defaultTo(&c.RetryMax, 5*time.Minute)
	defaultTo(&c.KeepSpread, 8)
	defaultTo(&c.ResultMessage, 400<<10)
	return c
}

func defaultTo[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate says which setting cannot work.
func (c Config) Validate() error {
	d := c.withDefaults()
	for _, s := range []struct {
		name  string
		value int64
	}{
		{"ack wait", int64(d.AckWait)}, {"lease time", int64(d.LeaseTTL)}, {"wait poll", int64(d.WaitPoll)},
		{"disk poll", int64(d.DiskPoll)},
		{"settle timeout", int64(d.SettleTimeout)}, {"attempts", int64(d.Attempts)}, {"shortest retry", int64(d.RetryMin)},
		{"longest retry", int64(d.RetryMax)}, {"kept states", int64(d.KeepSpread)},
		{"result message", int64(d.ResultMessage)},
	} {
		if s.value < 0 {
			return fmt.Errorf("worker setting %s is %d: it must be above 0", s.name, s.value)
		}
	}
	if d.RetryMin > d.RetryMax {
		return fmt.Errorf("worker retries after %v at least and %v at most: swap them", d.RetryMin, d.RetryMax)
	}
	if d.Capacity < 0 || d.Vocabulary < 0 || d.Memory < 0 {
		return fmt.Errorf("worker capacity %d, vocabulary %d and memory %d: none may be negative", d.Capacity, d.Vocabulary, d.Memory)
	}
	return nil
}
