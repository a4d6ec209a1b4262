package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"lector/cache"
	"lector/queue"
)

// Parts that a ready worker needs.
const (
	PartModel = "model" // loaded
	PartQueue = "queue" // connected
	PartStore = "store" // probed
)

// checkTimeout bounds one look at all parts.
const checkTimeout = 5 * time.Second

// errNotYet says that a part is not there so far.
var errNotYet = errors.New("not yet")

// Check asks a part whether it works now.
type Check func(ctx context.Context) error

// Health knows the parts of a process. It may be used from any goroutine.
type Health struct {
	mu       sync.Mutex
	checks   map[string]Check
	draining bool
}

// NewHealth is a process that has none of the parts yet.
func NewHealth(parts ...string) *Health {
	h := &Health{checks: map[string]Check{}}
	for _, p := range parts {
		h.checks[p] = func(context.Context) error { return errNotYet }
	}
	return h
}

// Set says how a part is asked from now on.
func (h *Health) Set(part string, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[part] = c
}

// Drain says that the process takes no more work.
func (h *Health) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready    bool              `json:"ready"`
	Draining bool              `json:"draining,omitempty"`
	Parts    map[string]string `json:"parts"` // "ok", or what is wrong
}

// Ask asks every part, all at once.
func (h *Health) Ask(ctx context.Context) Readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	h.mu.Lock()
	r := Readiness{Ready: !h.draining, Draining: h.draining, Parts: map[string]string{}}
	type answer struct {
		part string
		err  error
	}
	answers := make(chan answer, len(h.checks))
	for part, check := range h.checks {
		go func() { answers <- answer{part, check(ctx)} }()
	}
	n := len(h.checks)
	h.mu.Unlock()
	for range n {
		a := <-answers
		r.Parts[a.part] = "ok"
		if a.err != nil {
			r.Parts[a.part], r.Ready = a.err.Error(), false
		}
	}
	return r
}

// ServeHTTP answers 200 when every part works, else 503; the body says which does not.
func (h *Health) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r := h.Ask(req.Context())
	w.Header().Set("Content-Type", "application/json")
	if !r.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(r) // who asked has gone
}

// There is the check of a part that once there stays there.
func There(context.Context) error { return nil }

// QueueAnswers asks the queue for a job that nobody has: an answer shows that it is connected and works.
func QueueAnswers(q queue.Jobs) Check {
	return func(ctx context.Context) error {
		if _, err := q.Status(ctx, "readiness"); err != nil && !errors.Is(err, queue.ErrUnknown) {
			return err
		}
		return nil
	}
}

// StoreAnswers asks the store for an object that nobody has.
func StoreAnswers(s cache.Store, tenant string) Check {
	return func(ctx context.Context) error {
		if _, err := s.Stat(ctx, tenant+"/readiness"); err != nil && !errors.Is(err, cache.ErrNotFound) {
			return err
		}
		return nil
	}
}
