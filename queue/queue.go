// Package queue is the contract of job delivery: it hands jobs to one worker at a time, records their fate,
// and carries events and handles. It moves bytes and knows no model and no store; queue/jetstream
// implements it.
//
// What it promises:
//
//  1. A submitted job is delivered until it is settled; a dead worker's job comes back.
//  2. A Delivery is settled exactly once; after ErrLost it is no longer ours and nothing it publishes is accepted.
//  3. The first handle published for a job stands. A later one is compared by the caller, never stored over it.
//  4. Submitting a job whose id is known adopts the job that stands.
//
// Start reading at Delivery.
package queue

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrLost says that this delivery or lease is no longer ours.
	ErrLost = errors.New("delivery is no longer ours")
	// ErrHeld says that somebody else holds the lease.
	ErrHeld = errors.New("lease is held elsewhere")
	// ErrUnknown says that there is no job with that id.
	ErrUnknown = errors.New("unknown job")
	// ErrFull says that the queue takes no new jobs now.
	ErrFull = errors.New("queue is full")
	// ErrCancelled says that somebody wants the job to end: the delivery stands, and its work is to stop.
	ErrCancelled = errors.New("job is to be cancelled")
	// ErrClosed says that the queue's connection is gone.
	ErrClosed = errors.New("queue is closed")
)

// Queue is everything a worker and a client need; implementations give all of it.
type Queue interface {
	Jobs
	Source
	Events
	Handles
	Leases
	Gate
	Quotas
	Letters
	Close() error
}

// Jobs takes orders and knows what became of them.
type Jobs interface {
	// Submit stores the job and returns the status that stands: of the job submitted, or of an earlier one
	// with the same id (its own Submitted time included). A job that failed before is queued afresh.
	Submit(ctx context.Context, job Job) (Status, error)
	// Status returns what is known of a job; ErrUnknown. A job whose deadline has passed while it waited is Expired.
	Status(ctx context.Context, id string) (Status, error)
	// SetStatus records a worker's word on a job. Final states are never left, except by Submit of a failed job.
	SetStatus(ctx context.Context, s Status) error
	// Cancel asks that a job end, and returns the status that stands then. A job that waits is Cancelled at once; of one
	// that is worked on, Extend answers ErrCancelled from now on, and the worker has the last word. A final job
	// stays as it is; ErrUnknown.
	Cancel(ctx context.Context, id string, c Cancellation) (Status, error)
	// List calls yield for every job that is known, in any order, until yield returns false.
	List(ctx context.Context, yield func(Status) bool) error
}

// Cancellation is who asked for the end of a job, and why.
type Cancellation struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"` // for people
	By     string    `json:"by,omitempty"`     // for people: user and host
}

// Source hands out deliveries.
type Source interface {
	// Next waits for one job of the given kinds. It prefetches nothing. The job is Running from then, if it is not final.
	Next(ctx context.Context, kinds ...Kind) (Delivery, error)
}

// Delivery is one attempt at a job. It must be settled by exactly one of Done, Retry, Postpone, Release and Reject.
type Delivery interface {
	Job() Job
	// Attempt counts from 1; a Release or a Postpone does not count.
	Attempt() int
	// Standing is the job's status as Next left it: Running, or final where an earlier attempt did all but settle.
	Standing() Status
	// Extend restarts the redelivery timer, unless that was done a moment ago; ErrLost when the delivery is no longer ours,
	// ErrCancelled when it is ours, extended, and its work is to stop.
	Extend(ctx context.Context) error
	// Nudged is sent to when an Extend now would have news. A nudge may get lost.
	Nudged() <-chan struct{}
	// Done returns after the queue confirmed that the job will not come again.
	Done(ctx context.Context) error
	// Retry gives the job back, to come again after the given time.
	Retry(ctx context.Context, after time.Duration) error
	// Postpone gives the job back, uncounted, to come again after the given time: what it needs is taken just now. why
	// stands in its status until then.
	Postpone(ctx context.Context, after time.Duration, why string) error
	// Release gives the job back at once, uncounted: a drain.
	Release(ctx context.Context) error
	// Reject moves the job to the dead letters with its reason; it never comes again.
	Reject(ctx context.Context, dead Dead) error
}

// Dead is why a job will not be tried again.
type Dead struct {
	Class    string `json:"class"`          // typed reason, such as "bad-input" or "attempts"
	Reason   string `json:"reason"`         // one sentence
	LastGood int    `json:"last_good"`      // tokens of the deepest stored boundary
	Host     string `json:"host,omitempty"` // of the worker that gave it up
	Alarm    *Alarm `json:"alarm,omitempty"`
}

// Letters keeps the jobs that will not be tried again, until somebody decides on them. A letter goes when its job is
// submitted again.
type Letters interface {
	// DeadLetters calls yield for every dead letter, in any order, until yield returns false.
	DeadLetters(ctx context.Context, yield func(Letter) bool) error
	// DropLetter removes a dead letter and leaves its job failed; ErrUnknown.
	DropLetter(ctx context.Context, name string) error
}

// Letter is a dead letter.
type Letter struct {
	Name     string    `json:"name"`          // the job's id, or another where the message held no job
	Job      *Job      `json:"job,omitempty"` // nil where the message held none
	Dead     Dead      `json:"dead"`
	Attempts int       `json:"attempts"`
	At       time.Time `json:"at"`
	Raw      []byte    `json:"raw,omitempty"` // of a message that holds no job
}

// Events carries what happens to a job to whoever watches it.
type Events interface {
	// Publish appends an event to the job's story.
	Publish(ctx context.Context, e Event) error
	// Follow calls yield for every event of the job so far and from now on, in order, until yield returns
	// false or the context ends.
	Follow(ctx context.Context, job string, yield func(Event) bool) error
}

// Handles keeps the one published handle of a job.
type Handles interface {
	// PublishHandle stores body as the job's handle if it has none, and returns the body that stands.
	PublishHandle(ctx context.Context, job string, body []byte) (standing []byte, err error)
	// Handle returns the job's handle; ErrUnknown.
	Handle(ctx context.Context, job string) ([]byte, error)
}

// Gate stops and starts the handing out of jobs, for all workers of the queue.
type Gate interface {
	// Pause keeps Next waiting from now on. What was handed out before goes on, and Submit takes new jobs as ever.
	// Pausing again replaces the words that stand.
	Pause(ctx context.Context, p Pause) error
	// Unpause lets Next go on; harmless where nothing is paused.
	Unpause(ctx context.Context) error
	// Paused returns the pause that stands, or nil.
	Paused(ctx context.Context) (*Pause, error)
}

// Pause is why a queue hands out nothing.
type Pause struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"` // for people
	By     string    `json:"by,omitempty"`     // for people: user and host
}

// Leases are exclusive claims with a time limit, fenced by revision.
type Leases interface {
	// Acquire claims name for ttl; ErrHeld while somebody else's claim is valid.
	Acquire(ctx context.Context, name string, ttl time.Duration) (Lease, error)
}

// Lease is a claim that is held.
type Lease interface {
	// Renew extends the claim; ErrLost when it is no longer ours.
	Renew(ctx context.Context) error
	// Release gives the claim back; releasing a lost claim is harmless.
	Release(ctx context.Context) error
}
