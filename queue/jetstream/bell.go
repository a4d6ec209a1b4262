package jetstream

import (
	"slices"
	"strings"
	"time"

	"lector/queue"
)

// A bell names what it rings for, so that only those wake who may take the job, and so that a Next does not ask again for
// what had no jobs a moment ago. A ring that gets lost costs one Poll.

// ringFor tells every queue of the job's model that it may be due.
func (q *Queue) ringFor(job queue.Job) {
	name := string(job.Kind) + "." + job.Priority
	if job.Model == q.cfg.Model {
		q.rung(name) // a Next of this queue that follows must not wait for the message
	}
	_ = q.nc.Publish(jobBell(job.Model), []byte(name))
}

// rung wakes a Next for the jobs that a bell names, or for all where it names none.
func (q *Queue) rung(name string) {
	kind, priority, _ := strings.Cut(name, ".")
	if _, known := q.bells[queue.Kind(kind)]; !known {
		kind, priority = "", ""
	}
	q.mu.Lock()
	for key := range q.empty {
		if (kind == "" || key.kind == queue.Kind(kind)) && (priority == "" || key.priority == priority) {
			delete(q.empty, key)
		}
	}
	q.mu.Unlock()
	if kind == "" {
		q.ring(queue.Ingest, queue.Resume)
		return
	}
	q.ring(queue.Kind(kind))
}

// ring wakes one Next of each of the kinds. A ring while nobody listens is kept, a second one is not needed.
func (q *Queue) ring(kinds ...queue.Kind) {
	for _, kind := range kinds {
		select {
		case q.bells[kind] <- struct{}{}:
		default:
		}
	}
}

// listenTo are the bells of kinds.
func (q *Queue) listenTo(kinds []queue.Kind) (bells []<-chan struct{}) {
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(kinds))) {
		bells = append(bells, q.bells[kind])
	}
	return bells
}

// wasEmpty says that a consumer had no job a moment ago, and that no bell has rung for it since.
func (q *Queue) wasEmpty(key consumerKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Now().Before(q.empty[key])
}

// noteEmpty keeps a consumer that has no job from being looked at for one Poll. It is said before the look, and taken
// back where there was one: a bell that rings meanwhile must not be forgotten.
func (q *Queue) noteEmpty(key consumerKey, empty bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if empty {
		q.empty[key] = time.Now().Add(q.cfg.Poll)
	} else {
		delete(q.empty, key)
	}
}
