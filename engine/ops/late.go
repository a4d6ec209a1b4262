package ops

import "time"

// Part is what an operation's time is counted as.
type Part uint8

// The parts of a chunk's time.
const (
	PartOther Part = iota
	PartDelta
	PartAttention
	PartExperts
	PartMTP
	Parts // how many there are
)

// Late is a Backend that runs operations after they were called, and counts their time itself: what the host measures
// between two calls says nothing about it, and a Wait for the sake of a clock would let the device stand still.
type Late interface {
	// Mark says what the operations from here on are counted as.
	Mark(part Part)
	// Spent is how long the device has worked for each part, of everything that was waited for so far.
	Spent() [Parts]time.Duration
	// Err is the first error since the last Wait that is known by now. It waits for nothing and clears nothing.
	Err() error
}

// Clocked is what a Late backend may be besides: one whose operations take the host's own time.
type Clocked interface {
	// Waited says that the host has waited so long just now, which is no operation's time.
	Waited(d time.Duration)
}

// Beginner is what a Late backend may be besides: one that is held up where it tells parts apart.
type Beginner interface {
	// Begin lets the device begin with what was called so far, where that is worth its while.
	Begin()
}
