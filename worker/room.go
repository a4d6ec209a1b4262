package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"lector/engine"
)

// room is the memory that live sequences may take together. Attempts wait for it in the order of asking, so that a
// large one is not kept out for ever by small ones.
type room struct {
	total int64 // 0: no bound

	mu      sync.Mutex
	taken   int64
	waiting []*want
}

type want struct {
	bytes   int64
	granted chan struct{}
}

// enter waits until bytes are free and returns how they are given back. More than there will ever be is refused.
func (r *room) enter(ctx context.Context, drain <-chan struct{}, bytes int64) (leave func(), err error) {
	if r.total == 0 {
		return func() {}, nil
	}
	if bytes > r.total {
		return nil, fmt.Errorf("%w: the state takes %d bytes, and this worker gives all states together %d: raise --memory", engine.ErrMemory, bytes, r.total)
	}
	w := &want{bytes, make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, w)
	r.admit()
	r.mu.Unlock()
	select {
	case <-w.granted:
		return func() { r.leave(w) }, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-drain:
		err = errDrain
	}
	r.leave(w)
	return nil, err
}

// leave gives back what was granted, or stops asking.
func (r *room) leave(w *want) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, w); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	} else {
		r.taken -= w.bytes
	}
	r.admit()
}

// admit lets in from the front whatever fits.
func (r *room) admit() {
	for len(r.waiting) > 0 && r.taken+r.waiting[0].bytes <= r.total {
		r.taken += r.waiting[0].bytes
		close(r.waiting[0].granted)
		r.waiting = r.waiting[1:]
	}
}
