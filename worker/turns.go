package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"lector/queue"
)

// patience is how long the engine is kept for a kind that has had less of it but asks for nothing just now: a resume
// asks again when it has told its last token, and a document's next chunk would hold it up for much longer.
const patience = 20 * time.Millisecond

// turns lets the attempts of a process use one engine by turns, a step at a time: a chunk, or a token with its drafts.
// Between kinds the one that has had less time goes first, so that documents and resumes have half each while both
// want it; within a kind they go round.
type turns struct {
	now func() time.Time

	mu      sync.Mutex
	busy    bool
	since   time.Time // of the turn, or of the wait
	sharing map[queue.Kind]*sharing
	kept    *sharing    // the kind that the free engine is kept for
	wait    *time.Timer // until it is no longer
}

// sharing is what one kind has of the engine.
type sharing struct {
	members int           // live attempts
	used    time.Duration // engine time; a kind that comes new begins with what the least of the others has had
	asking  []chan struct{}
}

func newTurns(now func() time.Time) *turns {
	return &turns{now: now, sharing: map[queue.Kind]*sharing{queue.Ingest: {}, queue.Resume: {}}}
}

// join makes an attempt of a kind known until leave.
func (t *turns) join(kind queue.Kind) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sharing[kind]
	if s.members == 0 {
		for k, other := range t.sharing {
			if k != kind && other.members > 0 {
				s.used = max(s.used, other.used) // time without work is not saved up
			}
		}
	}
	s.members++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		s.members--
		t.next(false) // it may have been the one that the engine is kept for
	}
}

// take waits for a turn and returns how it ends.
func (t *turns) take(ctx context.Context, kind queue.Kind) (end func(), err error) {
	t.mu.Lock()
	s := t.sharing[kind]
	granted := make(chan struct{})
	s.asking = append(s.asking, granted)
	t.next(false)
	t.mu.Unlock()
	select {
	case <-granted:
	case <-ctx.Done():
		t.mu.Lock()
		i := slices.Index(s.asking, granted)
		if i >= 0 {
			s.asking = slices.Delete(s.asking, i, i+1)
		}
		t.mu.Unlock()
		if i < 0 {
			t.end(s) // granted meanwhile
		}
		return nil, context.Cause(ctx)
	}
	return func() { t.end(s) }, nil
}

// end charges a turn and gives the engine to the next.
func (t *turns) end(s *sharing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.used += t.now().Sub(t.since)
	t.busy = false
	t.next(false)
}

// next gives a free engine to who is first in the kind that has had least, or keeps it a moment for that kind when it
// asks for nothing; expired ends such a wait.
func (t *turns) next(expired bool) {
	if t.busy {
		return
	}
	if t.kept != nil {
		t.wait.Stop()
		t.kept.used += t.now().Sub(t.since) // what was kept for it counts as its time
		t.kept = nil
	}
	asks := t.least(func(s *sharing) bool { return len(s.asking) > 0 })
	if asks == nil {
		return
	}
	first := t.least(func(s *sharing) bool { return len(s.asking) > 0 || s.members > 0 })
	t.since = t.now()
	if first != asks && !expired {
		t.kept, t.wait = first, time.AfterFunc(patience, t.giveUp)
		return
	}
	t.busy = true
	close(asks.asking[0])
	asks.asking = asks.asking[1:]
}

// giveUp ends a wait in vain.
func (t *turns) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next(t.kept != nil)
}

// least is the kind that has had least of the engine among those that ok takes; resumes before documents.
func (t *turns) least(ok func(*sharing) bool) *sharing {
	var best *sharing
	for _, kind := range []queue.Kind{queue.Resume, queue.Ingest} {
		if s := t.sharing[kind]; ok(s) && (best == nil || s.used < best.used) {
			best = s
		}
	}
	return best
}
