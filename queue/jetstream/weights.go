package jetstream

import (
	"slices"

	"lector/queue"
)

// turns says which priority is looked at first. Of jobs that wait, each priority gets its weight's share, so that none
// starves and none is kept for a priority that has no jobs.
type turns struct {
	weights map[string]int
	credit  map[string]int
}

// newTurns gives a priority that has no weight given one more than twice the next one's: 7, 3, 1 for three.
func newTurns(priorities []string, weights map[string]int) *turns {
	t := &turns{weights: map[string]int{}, credit: map[string]int{}}
	w := 1
	for _, p := range slices.Backward(priorities) {
		t.weights[p] = w
		if given := weights[p]; given > 0 {
			t.weights[p] = given
		}
		w = w*2 + 1
	}
	return t
}

// order is the priorities as they are to be looked at now.
func (t *turns) order(priorities []string) []string {
	out := slices.Clone(priorities)
	slices.SortStableFunc(out, func(a, b string) int {
		return (t.credit[b] + t.weights[b]) - (t.credit[a] + t.weights[a])
	})
	return out
}

// took notes that a job of one priority was handed out after those before it in order had none. A priority without jobs
// saves nothing up.
func (t *turns) took(order []string, priority string) {
	round := 0
	for i, p := range order {
		if i < slices.Index(order, priority) {
			t.credit[p] = 0
			continue
		}
		t.credit[p] += t.weights[p]
		round += t.weights[p]
	}
	t.credit[priority] -= round
}

// lookOrder and tookTurn hold the queue's lock: several Next may go on at once.
func (q *Queue) lookOrder() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns.order(q.cfg.Priorities)
}

func (q *Queue) tookTurn(order []string, job queue.Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns.took(order, job.Priority)
}
