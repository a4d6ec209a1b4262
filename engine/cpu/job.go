package cpu

import (
	"runtime"
	"sync/atomic"
	"time"
)

// task is what a job carries out: phase after phase, each on items of its own.
type task interface {
	// do runs items [from, to) of a phase, in the memory of s. Those of one phase run side by side, and when all of the
	// phases before have run.
	do(s *scratch, phase, from, to int)
}

// begins is a task that is told on the caller's goroutine when a phase begins.
type begins interface{ begin(phase int) }

// foresees is a task that can bring near what an item of a phase begins with. It is asked while others are at the phase before, whose
// results it must not look at.
type foresees interface {
	near(s *scratch, phase, item int)
}

// phase is n items, taken in runs of grain.
type phase struct{ n, grain int }

// runs is how many runs the items make.
func (p phase) runs() int { return (p.n + p.grain - 1) / p.grain }

// job is one call of parallel or inPhases. Two cores may be far apart, such that a line of memory goes from one to the other as slowly
// as a small item runs. So a worker writes where others look only when it begins, when it ends a phase and when it takes
// of another's part; none counts items for all. What is allocated in 128 bytes, as a job is, begins with a line of memory.
type job struct {
	turn   atomic.Uint64 // this use of the job; 0: none may begin any more
	task   task
	count  int // of phases
	phases *[maxPhases]phase
	parts  []part              // one for every worker, of the phase under way
	seats  []seat              // the same
	failed atomic.Pointer[any] // what a panic said
	last   uint64              // the caller's: turns so far
	laps   *laps               // of a counted job, else nil
	begins begins              // the task, where it wants to know; else nil
}

const (
	// maxRuns is the most runs of a phase: a part's ends have room for so many.
	maxRuns = 1<<endBits - 1
	endBits = 12
	// maxPhases is the most phases of a job, which count from 1.
	maxPhases = gone - 1
	// gone is a worker's phase when it takes no part any more.
	gone      = 1<<phaseBits - 1
	phaseBits = 6
	// maxTurns is how often a job is used: a part has room for so many beside its ends.
	maxTurns = 1<<(64-2*endBits-phaseBits) - 1
)

// part is the runs that nobody took of those that one worker begins with: from and to, below the number of their stage. Where that
// is smaller than the stage under way, none of the part's runs were taken so far. No two parts share a line of memory.
type part struct {
	ends  uint64 // but for the caller's before a turn it is read and written atomically
	owned uint64 // the owner writes it to have the line at hand
	_     [112]byte
}

// seat is how far a worker has come: a turn, and the phase in which it is, counted from 1. No two share a line of memory.
type seat struct {
	at atomic.Uint64
	_  [120]byte
}

func newJob(workers int) *job {
	return &job{phases: new([maxPhases]phase), parts: make([]part, workers), seats: make([]seat, workers)}
}

// set begins a turn, whose caller is worker 0.
func (j *job) set(t task, phases []phase) {
	j.task, j.count = t, copy(j.phases[:], phases)
	j.begins, _ = t.(begins)
	for i := range phases {
		p := &j.phases[i]
		p.grain = max(p.grain, (p.n+maxRuns-1)/maxRuns)
	}
	if j.failed.Load() != nil {
		j.failed.Store(nil)
	}
	j.last++
	j.parts[0].ends = stageOf(j.last, 0).number<<(2*endBits) | uint64(j.phases[0].runs()/len(j.parts))
	j.turn.Store(j.last)
}

// join is the turn that worker me may take part in, and has not yet; 0 where there is none.
func (j *job) join(me int) uint64 {
	turn := j.turn.Load()
	seat := &j.seats[me].at
	if turn == 0 || seat.Load()>>phaseBits == turn {
		return 0
	}
	j.parts[me].owned = turn
	seat.Store(turn<<phaseBits | 1)
	if j.turn.Load() == turn {
		return turn
	}
	seat.Store(turn<<phaseBits | gone)
	return 0
}

// waits says that worker me has not taken part in the turn under way.
func (j *job) waits(me int) bool {
	turn := j.turn.Load()
	return turn != 0 && j.seats[me].at.Load()>>phaseBits != turn
}

// busy says that its caller is at work.
func (j *job) busy() bool {
	turn := j.turn.Load()
	return turn != 0 && j.seats[0].at.Load() != turn<<phaseBits|gone
}

// work carries the job out as worker me, until no run of any phase is left or one panicked.
func (j *job) work(s *scratch, me int, turn uint64) {
	defer j.leave(me, turn)
	for p := range j.count {
		at := stageOf(turn, p)
		if p > 0 {
			j.parts[me].owned = at.number
			j.seats[me].at.Store(at.number)
			j.foresee(s, me, p)
			j.meet(me, at.number)
		}
		if me == 0 && j.begins != nil {
			j.begins.begin(p)
		}
		if !j.takeTimed(s, me, at) {
			return
		}
	}
}

// foresee brings near what worker me begins a phase with.
func (j *job) foresee(s *scratch, me, phase int) {
	f, ok := j.task.(foresees)
	if p := j.phases[phase]; ok && p.n > 0 {
		f.near(s, phase, min(p.runs()*me/len(j.parts)*p.grain, p.n-1))
	}
}

// takeTimed is take, and notes when that was where the job is counted.
func (j *job) takeTimed(s *scratch, me int, at stage) bool {
	if j.laps == nil {
		return j.take(s, me, at)
	}
	start := time.Now()
	if me == 0 {
		j.laps.at[at.phase] = start
	}
	defer func() { j.laps.busy[me][at.phase] += time.Since(start) }()
	return j.take(s, me, at)
}

// leave keeps what a panic says, and gives the seat up.
func (j *job) leave(me int, turn uint64) {
	if v := recover(); v != nil {
		j.fail(v)
	}
	j.seats[me].at.Store(turn<<phaseBits | gone)
}

func (j *job) fail(v any) { j.failed.CompareAndSwap(nil, &v) }

// stage is a phase of a turn, and its number: those that come later have larger ones.
type stage struct {
	number uint64
	phase  int
}

func stageOf(turn uint64, phase int) stage { return stage{turn<<phaseBits | uint64(phase+1), phase} }

// take runs items of a phase until none is left, those of its own part first, front to back, and then from the ends of the others'.
// It says whether to go on.
func (j *job) take(s *scratch, me int, at stage) bool {
	p := j.phases[at.phase]
	runs := p.runs()
	for i := range j.parts {
		w := me + i
		if w >= len(j.parts) {
			w -= len(j.parts)
		}
		for {
			if j.failed.Load() != nil {
				return false
			}
			got := j.parts[w].grab(at.number, span{runs * w / len(j.parts), runs * (w + 1) / len(j.parts)}, i > 0)
			if got.from == got.to {
				break
			}
			s.end = min(got.end*p.grain, p.n)
			j.task.do(s, at.phase, got.from*p.grain, min(got.to*p.grain, p.n))
		}
	}
	return true
}

// taken is runs [from, to) of a part whose rest went up to end.
type taken struct{ from, to, end int }

// grab takes a run off the front or the back of a part, which had all of its runs at first; nothing where nothing is left.
func (p *part) grab(number uint64, all span, back bool) taken {
	for {
		seen := atomic.LoadUint64(&p.ends)
		first, last := int(seen>>endBits&maxRuns), int(seen&maxRuns)
		switch other := seen >> (2 * endBits); {
		case other > number: // others are at a later phase
			return taken{}
		case other < number:
			first, last = all.from, all.to
		}
		if first >= last {
			return taken{}
		}
		from, to := first, first+1
		rest := uint64(to)<<endBits | uint64(last)
		if back {
			from, to = last-1, last
			rest = uint64(first)<<endBits | uint64(from)
		}
		if atomic.CompareAndSwapUint64(&p.ends, seen, number<<(2*endBits)|rest) {
			return taken{from, to, last}
		}
	}
}

// meet returns when all workers who take part have come to a stage. One who comes later finds no runs of the phases
// before.
func (j *job) meet(me int, number uint64) {
	for w := range j.seats {
		if w != me {
			j.await(w, number)
		}
	}
}

// settle returns when no other worker takes part, and none can.
func (j *job) settle() {
	for w := range j.seats[1:] {
		if j.seats[w+1].at.Load()>>phaseBits != j.last {
			j.turn.Store(0)
			break
		}
	}
	for w := range j.seats[1:] {
		j.await(w+1, j.last<<phaseBits|gone)
	}
}

// await returns when worker w has come to a stage, or takes no part in its turn.
func (j *job) await(w int, number uint64) {
	for range glances {
		if j.here(w, number) {
			return
		}
	}
	for start := time.Now(); time.Since(start) < soon; runtime.Gosched() {
		for range glances {
			if j.here(w, number) {
				return
			}
		}
	}
	for !j.here(w, number) {
		time.Sleep(nap)
	}
}

// here says that worker w need not be waited for. The caller takes part in every turn.
func (j *job) here(w int, number uint64) bool {
	at := j.seats[w].at.Load()
	return at >= number || w > 0 && at>>phaseBits != number>>phaseBits
}
