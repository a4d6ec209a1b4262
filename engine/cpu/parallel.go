package cpu

import (
	"sync"
	"sync/atomic"
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

// scratches keeps what no goroutine works in.
type scratches struct{ spares[scratch] }

func (p *scratches) get(b *Backend) *scratch {
	if s := p.spares.get(); s != nil {
		return s
	}
	return b.newScratch()
}

// floats resizes *p to n floats of unknown content.
func floats(p *[]float32, n int) []float32 { return sized(p, n) }

// sized resizes *p to n elements of unknown content.
func sized[T any](p *[]T, n int) []T {
	if cap(*p) < n {
		*p = make([]T, n)
	}
	return (*p)[:n]
}

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
	if n <= 0 {
		return
	}
	if min(b.workers, (n+grain-1)/grain) <= 1 {
		s := b.scratch.get(b)
		s.end = n
		work(s, 0, n)
		b.scratch.put(s)
		return
	}
	b.crew.run(b, n, grain, work)
}

// job is one call of parallel.
type job struct {
	grain   int
	work    func(s *scratch, from, to int)
	parts   []part       // one for every worker
	left    atomic.Int64 // items that nobody took
	inside  atomic.Int64 // helpers that look at the job
	waiting atomic.Bool  // the caller sleeps until nobody is inside
	wake    chan struct{}
	failed  atomic.Pointer[any]
}

// part is the items [from, to) that nobody took of those that one worker begins with. No two parts share a line of memory.
type part struct {
	ends atomic.Uint64 // from in the upper half
	_    [56]byte
}

// set cuts n items into parts, of whole runs.
func (j *job) set(n, grain int, work func(s *scratch, from, to int)) {
	j.grain, j.work = grain, work
	runs, parts := (n+grain-1)/grain, len(j.parts)
	for i := range j.parts {
		from, to := min(runs*i/parts*grain, n), min(runs*(i+1)/parts*grain, n)
		j.parts[i].ends.Store(uint64(from)<<32 | uint64(to))
	}
	j.failed.Store(nil)
	j.left.Store(int64(n))
}

// taken are items [from, to) of a part whose rest went up to end.
type taken struct{ from, to, end int }

// take takes up to n items off the front or the back of a part: none where nothing is left.
func (p *part) take(n int, back bool) taken {
	for {
		ends := p.ends.Load()
		first, last := int(ends>>32), int(ends&(1<<32-1))
		if first >= last {
			return taken{}
		}
		from, to := first, min(first+n, last)
		rest := uint64(to)<<32 | uint64(last)
		if back {
			from, to = first+(last-first-1)/n*n, last
			rest = uint64(first)<<32 | uint64(from)
		}
		if p.ends.CompareAndSwap(ends, rest) {
			return taken{from, to, last}
		}
	}
}

// take runs items until none is left or one panicked, those of its own part first.
func (j *job) take(s *scratch, own int) {
	defer func() {
		if v := recover(); v != nil {
			j.failed.CompareAndSwap(nil, &v)
		}
	}()
	for i := range j.parts {
		p := &j.parts[(own+i)%len(j.parts)]
		for j.failed.Load() == nil {
			t := p.take(j.grain, i > 0)
			if t.from == t.to {
				break
			}
			j.left.Add(int64(t.from - t.to))
			s.end = t.end
			j.work(s, t.from, t.to)
		}
	}
}
