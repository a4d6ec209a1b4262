package cpu

import (
	"sync"
	"sync/atomic"
)

// scratch is what one goroutine of one operation works in. Its slices keep their size between operations, and
// nobody may rely on what is in them.
type scratch struct {
	vector    vector    // kernels to use
	chains    *chains   // in the class cpu-f32-blocked, else nil
	panel     []float32 // decoded weight rows
	columns   []float32 // the same, transposed
	values    []float32 // scores, columns of a state, outputs of experts
	more      []float32 // second buffer beside values
	sums      []float64 // of softmaxes
	tokens    []int32   // visible tokens of a row
	union     []int32   // of some rows
	lists     [][]int32 // of each of them
	cursors   []int     // into those lists
	histogram [2048]int32
}

// scratches keeps what no goroutine works in. Go's own pool would drop it at every collection, and a chunk would make it
// again; there are never more than goroutines that worked at one time.
type scratches struct {
	mu   sync.Mutex
	free []*scratch
}

func (p *scratches) get(b *Backend) *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s
	}
	return b.newScratch()
}

func (p *scratches) put(s *scratch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// floats resizes *p to n floats of unknown content.
func floats(p *[]float32, n int) []float32 {
	if cap(*p) < n {
		*p = make([]float32, n)
	}
	return (*p)[:n]
}

// floats64 is floats for float64.
func floats64(p *[]float64, n int) []float64 {
	if cap(*p) < n {
		*p = make([]float64, n)
	}
	return (*p)[:n]
}

// workPerGrain is how many multiply-adds (or alike) a goroutine should take at a time: some tens of
// microseconds, well above what starting it costs.
const workPerGrain = 1 << 15

// grain is the number of items that one goroutine takes at a time when each costs `cost` multiply-adds.
func grain(cost int) int { return max(1, workPerGrain/max(1, cost)) }

// parallel runs work over [0, n) in runs of `grain` items on at most b.workers goroutines, of which the caller's is
// one, and returns when all are done. Which goroutine takes which run is not determined; so no item's result may
// depend on it. A panic in work stops further runs and is raised again in the caller.
func (b *Backend) parallel(n, grain int, work func(s *scratch, from, to int)) {
	if n <= 0 {
		return
	}
	if min(b.workers, (n+grain-1)/grain) <= 1 {
		s := b.scratch.get(b)
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
	n       atomic.Int64 // items
	next    atomic.Int64 // first item that nobody took
	inside  atomic.Int64 // helpers that look at the job
	waiting atomic.Bool  // the caller sleeps until nobody is inside
	wake    chan struct{}
	failed  atomic.Pointer[any]
}

// take runs items until none is left or one panicked.
func (j *job) take(b *Backend) {
	defer func() {
		if v := recover(); v != nil {
			j.failed.CompareAndSwap(nil, &v)
		}
	}()
	s, n := b.scratch.get(b), int(j.n.Load())
	for j.failed.Load() == nil {
		to := int(j.next.Add(int64(j.grain)))
		if to-j.grain >= n {
			break
		}
		j.work(s, to-j.grain, min(to, n))
	}
	b.scratch.put(s)
}
