package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"lector/engine"
)

// errFull says that other jobs of this worker have the memory that one needs: there will be room.
var errFull = errors.New("other jobs have the memory")

// room is the memory that live sequences may take together. Attempts wait for it in the order of asking, so that a
// large one is not kept out for ever by small ones.
type room struct {
	total int64 // 0: no bound

	mu      sync.Mutex
	taken   int64
	live    int // of those that were granted room
	waiting []*want
}

// want is room that is asked for, and had once it is granted.
type want struct {
	room    *room
	bytes   int64
	granted chan struct{}
}

// ask gets in line for bytes. More than there will ever be is refused.
func (r *room) ask(bytes int64) (*want, error) {
	if r.total > 0 && bytes > r.total {
		return nil, fmt.Errorf("%w: the state takes %d bytes, and this worker gives all states together %d: raise --memory", engine.ErrMemory, bytes, r.total)
	}
	w := &want{r, bytes, make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, w)
	r.admit()
	return w, nil
}

// leave gives back what was granted, or stops asking.
func (w *want) leave() {
	r := w.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, w); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	} else {
		r.taken -= w.bytes
		r.live--
	}
	r.admit()
}

// admit lets in from the front whatever fits.
func (r *room) admit() {
	for len(r.waiting) > 0 && (r.total == 0 || r.taken+r.waiting[0].bytes <= r.total) {
		r.taken += r.waiting[0].bytes
		r.live++
		close(r.waiting[0].granted)
		r.waiting = r.waiting[1:]
	}
}

// alone says that no two have room.
func (r *room) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live <= 1
}

// wait returns when the room is granted, or gives up asking with the reason: the attempt is lost, the worker drains, or
// the job is to end.
func (a *attempt) wait(ctx context.Context, w *want) (err error) {
	defer func() {
		if err != nil {
			w.leave()
		}
	}()
	for {
		late := make(<-chan time.Time)
		if d := a.job.Deadline; !d.IsZero() {
			t := time.NewTimer(max(d.Sub(a.now()), time.Millisecond))
			defer t.Stop()
			late = t.C
		}
		select {
		case <-w.granted:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.drain:
			return errDrain
		case <-a.alive.ended:
		case <-late:
		}
		if err := a.asked(); err != nil {
			return err
		}
	}
}
