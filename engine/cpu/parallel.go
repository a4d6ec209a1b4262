package cpu

import (
	"sync"
	"time"

	"lector/engine/cpu/fma"
)

// scratch is what one goroutine of one operation works in. Its slices keep their size between operations, and
// nobody may rely on what is in them.
type scratch struct {
	vector  vector    // kernels to use
	chains  *chains   // in the class cpu-f32-blocked, else nil
	panel   []float32 // decoded weight rows
	columns []float32 // the same, transposed
	values  []float32 // scores, columns of a state, outputs of experts
	more    []float32 // second buffer beside values
	sums    []float64 // of softmaxes
	tokens  []int32   // visible tokens of a row
	union   []int32   // of some rows
	lists   [][]int32 // of each of them
	cursors []int     // into those lists
	chooser chooser
	end     int // of the items that this goroutine is likely to come to, one after another
}

// spares keeps what is in nobody's use. Go's own pool would drop it at every collection, and a chunk would make it again;
// there are never more than were in use at one time.
type spares[T any] struct {
	mu   sync.Mutex
	free []*T
}

// get is one of them, nil where there is none.
func (p *spares[T]) get() *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return nil
	}
	v := p.free[n-1]
	p.free = p.free[:n-1]
	return v
}

func (p *spares[T]) put(v *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, v)
}

// reusable forgets what it referred to, and keeps its memory.
type reusable[T any] interface {
	*T
	reset()
}

// kept are spares that hold nothing of what they were used for.
type kept[T any, P reusable[T]] struct{ spares[T] }

// take is one of them, or a new one.
func (k *kept[T, P]) take() P {
	if v := k.get(); v != nil {
		return v
	}
	return new(T)
}

// put takes one back.
func (k *kept[T, P]) put(v P) {
	v.reset()
	k.spares.put(v)
}

// scratches keeps what no goroutine works in.
type scratches struct{ spares[scratch] }

func (p *scratches) get(b *Backend) *scratch {
	if s := p.spares.get(); s != nil {
		return s
	}
	return b.newScratch()
}

// floats resizes *p to n floats of unknown content.
func floats(p *[]float32, n int) []float32 { return fma.Grow(p, n) }

// workPerGrain is how many multiply-adds (or alike) a goroutine should take at a time: some tens of
// microseconds, well above what starting it costs.
const workPerGrain = 1 << 15

// grain is the number of items that one goroutine takes at a time when each costs `cost` multiply-adds.
func grain(cost int) int { return max(1, workPerGrain/max(1, cost)) }

// parallel runs work over [0, n) in runs of `grain` items on at most b.workers goroutines, of which the caller's is
// one, and returns when all are done. Every goroutine begins with a part of its own, front to back, and then takes from
// the ends of the others'; which takes which run is not determined, so no item's result may depend on it. A panic in work
// stops further runs and is raised again in the caller.
func (b *Backend) parallel(n, grain int, work func(s *scratch, from, to int)) {
	b.inPhases(single(work), phase{n, grain})
}

// single is a task of one phase.
type single func(s *scratch, from, to int)

func (f single) do(s *scratch, _, from, to int) { f(s, from, to) }

// inPhases runs a task's phases, one after the other, each as parallel does.
func (b *Backend) inPhases(t task, phases ...phase) {
	most := 0
	for _, p := range phases {
		most = max(most, p.runs())
	}
	if min(b.workers, most) > 1 {
		b.crew.run(b, t, phases)
		return
	}
	s := b.scratch.get(b)
	told, _ := t.(begins)
	for i, p := range phases {
		if told != nil {
			told.begin(i)
		}
		if p.n > 0 {
			s.end = p.n
			b.alone(t, s, i, p.n)
		}
	}
	b.scratch.put(s)
}

// alone runs n items of a phase on the caller's goroutine.
func (b *Backend) alone(t task, s *scratch, phase, n int) {
	if !b.profile.on.Load() {
		t.do(s, phase, 0, n)
		return
	}
	start := time.Now()
	t.do(s, phase, 0, n)
	took := time.Since(start)
	b.profile.count(nameOf(t, phase), took, took, b.workers)
}
