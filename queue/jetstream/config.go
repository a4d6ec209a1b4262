package jetstream

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"lector/queue"
)

// Config says which server to talk to and how to use it. The zero value of a field means its default.
type Config struct {
	// Conn is a connection to use; it stays the caller's. Open wants Conn or URL.
	Conn *nats.Conn
	// URL is the server or, separated by commas, servers to connect to.
	URL string
	// Access is who the connection by URL belongs to, and how the server is known.
	Access Access
	// Options are added to those of a connection by URL.
	Options []nats.Option
	// Dir is the data folder of Embedded and Connect.
	Dir string
	// Lock is the lock that the caller holds on Dir; Embedded takes one itself when it is nil.
	Lock *FolderLock
	// Service is the kinds of jobs that the owner of Dir takes for others, of Model; nil: it serves nobody but itself. What
	// an earlier owner left goes on where it was, resumes too, and an attempt that died with it counts, so that a job
	// which ends the process ends as a dead letter.
	Service []queue.Kind
	// Visit says that the owner of Dir only looks or submits: what an earlier owner left stays for the next that works.
	Visit bool

	// Model is the model whose jobs Next hands out; a queue without one only submits and watches.
	Model string
	// Priorities are the priorities that exist, the most urgent first; default high, normal, low.
	Priorities []string
	// Weights say how many jobs of a priority are handed out for each of another's while both wait; default 7, 3 and 1
	// for three priorities.
	Weights map[string]int

	// AckWait is how long a delivery stands without Extend; default 30 s. All workers of a fleet use the same.
	AckWait time.Duration
	// Poll is how often a waiting call looks by itself; default 500 ms. New jobs and events ring a bell.
	Poll time.Duration
	// Timeout bounds every request whose context does not; default 5 s. On the server of a data folder it is 30 s: nothing is
	// lost on the way to it, its connections end with it, and a slow disk may hold up a write that it syncs.
	Timeout time.Duration

	// Create makes Open create the streams that are missing and mend those that differ; without it Open answers
	// ErrTopology. An Embedded server always does.
	Create bool
	// Replicas is the number of copies of each stream; default 1 for streams created here, any for those that exist.
	// The same holds for the limits that follow.
	Replicas int
	// MaxJobs is how many jobs may wait before Submit answers queue.ErrFull; default 100,000.
	MaxJobs int64
	// MaxEventBytes and MaxEventAge bound the events kept; default 256 MiB and 7 days.
	MaxEventBytes int64
	MaxEventAge   time.Duration
	// Dedupe is how long the server remembers message ids; default 1 h. A submit that crashed halfway and is repeated
	// within it stores nothing twice; later, the second message is dropped at its delivery.
	Dedupe time.Duration

	// Clock dates what this host writes, for people; nil is time.Now. Nothing is decided by it: see Queue.Now.
	Clock func() time.Time
	// Log takes the words of the embedded server and of connections; nil drops them.
	Log func(level Level, text string)
}

// Priorities are those that exist where nobody says, the most urgent first.
func Priorities() []string { return []string{"high", "normal", "low"} }

// What streams are created with where nobody says.
const (
	defaultMaxJobs       = 100_000
	defaultMaxEventBytes = 256 << 20
	defaultMaxEventAge   = 7 * 24 * time.Hour
	defaultDedupe        = time.Hour
)

// Level says how much a log line matters.
type Level uint8

const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Validate checks what defaults cannot mend.
func (c Config) Validate() error {
	switch {
	case c.Conn != nil && c.URL != "":
		return errors.New("queue config has both a connection and a URL: give one")
	case c.AckWait < 0 || c.Poll < 0 || c.Timeout < 0 || c.MaxEventAge < 0 || c.Dedupe < 0:
		return errors.New("queue config has a negative time")
	case c.MaxJobs < 0 || c.MaxEventBytes < 0:
		return errors.New("queue config has a negative limit")
	case c.Replicas < 0 || c.Replicas > 5:
		return fmt.Errorf("queue config asks for %d replicas: 1 to 5", c.Replicas)
	case c.Model != "" && !validToken(c.Model):
		return fmt.Errorf("queue config names the model %q, not an id", c.Model)
	}
	for p, w := range c.Weights {
		if w < 1 {
			return fmt.Errorf("queue config gives the priority %q the weight %d: at least 1", p, w)
		}
	}
	for _, p := range c.Priorities {
		if !validToken(p) {
			return fmt.Errorf("queue config names the priority %q: use letters, digits, '-' and '_'", p)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if len(c.Priorities) == 0 {
		c.Priorities = Priorities()
	}
	c.AckWait = cmp.Or(c.AckWait, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, 500*time.Millisecond)
	if c.Dir != "" {
		c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	}
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = func(Level, string) {}
	}
	return c
}

// validToken says that s is safe as one token of a subject and in the name of a consumer.
func validToken(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return false
		}
	}
	return true
}
