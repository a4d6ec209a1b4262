package ops

import "time"

// Profiler is what a Backend may be besides: one that counts where its time goes, by operation and step of one.
type Profiler interface {
	// Profile begins to count, from nothing. No operation may be under way.
	Profile()
	// Profiled ends that, and returns what was counted, in the order of each one's first use.
	Profiled() []Profiled
}

// Profiled is what all runs of an operation, or of a step of one, took.
type Profiled struct {
	Name string
	Runs int
	Wall time.Duration // by the clock
	Idle time.Duration // what workers waited or stood still meanwhile, all of them together
}
