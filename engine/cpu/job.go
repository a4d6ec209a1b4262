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
// of another's part, and looks where others write only when it has nothing to do; none counts items for all. What is allocated in 128
// bytes, as a job is, begins with a line of memory.
//
// A phase is over when every worker who takes part has come to the next one. One comes there when all runs of its own part are done,
// also those that others took of it; who waits for another long enough takes some. Helpers may be at the first phases while the caller
// adds more.
type job struct {
	turn   atomic.Uint64 // this use of the job; 0: none may begin any more
	task   task
	phases *[maxPhases]phase
	parts  []part              // one for every worker, of the phase under way
	seats  []seat              // the same
	failed atomic.Pointer[any] // what a panic said
	last   uint64              // the caller's: turns so far
	laps   *laps               // of a counted job, else nil
	begins begins              // the task, where it wants to know; else nil

	_     [128]byte
	known atomic.Uint64 // phases that may begin; with complete, there are no more
	_     [128]byte
}

// complete is above any number of phases.
const complete = 1 << 16

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
	ends  atomic.Uint64
	given atomic.Uint64 // runs that others took and have done, below the number of their stage
	owned uint64        // the owner writes it to have the line at hand
	_     [104]byte
}

// seat is how far a worker has come: a turn, and the phase in which it is, counted from 1. No two share a line of memory.
type seat struct {
	at atomic.Uint64
	_  [120]byte
}

func newJob(workers int) *job {
	return &job{phases: new([maxPhases]phase), parts: make([]part, workers), seats: make([]seat, workers)}
}

// open begins a turn of no phases yet, whose caller is worker 0: it takes part once it enters.
func (j *job) open(t task) {
	j.task = t
	j.begins, _ = t.(begins)
	if j.failed.Load() != nil {
		j.failed.Store(nil)
	}
	j.last++
	j.known.Store(0)
	j.turn.Store(j.last)
}

// set begins a turn with all of its phases, in which the caller takes part.
func (j *job) set(t task, phases []phase) {
	j.seats[0].at.Store(stageOf(j.last+1, 0).number)
	for i, p := range phases {
		j.phase(i, p)
	}
	j.open(t)
	j.known.Store(uint64(len(phases)) | complete)
}

// phase says what phase i is, before it is known.
func (j *job) phase(i int, p phase) {
	p.grain = max(p.grain, (p.n+maxRuns-1)/maxRuns)
	j.phases[i] = p
}

// add makes phases known: all up to now, of which the first were so already.
func (j *job) add(phases []phase) {
	for i := int(j.known.Load()); i < len(phases); i++ {
		j.phase(i, phases[i])
	}
	publish(&j.known, uint64(len(phases)))
}

// enter takes the caller to the first phase that may not be over, of a turn whose phases are all known.
func (j *job) enter() (from int) {
	for w := range j.seats {
		if at := j.seats[w].at.Load(); at>>phaseBits == j.last {
			from = max(from, int(min(at&gone, j.known.Load()&^complete))-1)
		}
	}
	j.seats[0].at.Store(stageOf(j.last, from).number)
	return from
}

// reaches says whether there is a phase p, once that is known.
func (j *job) reaches(p int) bool {
	var known uint64
	j.watch(func() bool {
		known = j.known.Load()
		return known&complete != 0 || int(known) > p
	})
	return p < int(known&^complete)
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
func (j *job) work(s *scratch, me int, turn uint64) { j.workFrom(s, me, turn, 0) }

// workFrom is work of the phases from one on.
func (j *job) workFrom(s *scratch, me int, turn uint64, from int) {
	defer j.leave(me, turn)
	for p := from; ; p++ {
		at := stageOf(turn, p)
		if p > from {
			publish(&j.seats[me].at, at.number)
		}
		if !j.reaches(p) {
			return
		}
		own := j.grabOwn(me, at)
		if p > 0 {
			j.foresee(s, me, p)
			if !j.meet(s, me, at) {
				return
			}
		}
		if me == 0 && j.begins != nil {
			j.begins.begin(p)
		}
		if !j.takeTimed(s, me, at, own) {
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
func (j *job) takeTimed(s *scratch, me int, at stage, own taken) bool {
	if j.laps == nil {
		return j.take(s, me, at, own)
	}
	start := time.Now()
	if me == 0 {
		j.laps.at[at.phase] = start
	}
	defer func() { j.laps.busy[me][at.phase] += time.Since(start) }()
	return j.take(s, me, at, own)
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

// take runs the items of worker me's own part, of which it has some, and of the parts of those who do not take part; in the last
// phase those of all. It says whether to go on.
func (j *job) take(s *scratch, me int, at stage, own taken) bool {
	for ; own.from < own.to; own = j.grabOwn(me, at) {
		if !j.run(s, at.phase, own) {
			return false
		}
	}
	if !j.given(me, at.number, own.stolen) {
		return false
	}
	for i := 1; i < len(j.parts); i++ {
		w := me + i
		if w >= len(j.parts) {
			w -= len(j.parts)
		}
		if (j.known.Load() == uint64(at.phase+1)|complete || !j.takesPart(w, at.number)) && !j.steal(s, w, at) {
			return false
		}
	}
	return j.failed.Load() == nil
}

// run carries out runs that were taken, and says whether to go on.
func (j *job) run(s *scratch, phase int, t taken) bool {
	if j.failed.Load() != nil {
		return false
	}
	p := &j.phases[phase]
	s.end = min(t.end*p.grain, p.n)
	for i := t.from; i < t.to; i++ {
		j.task.do(s, phase, i*p.grain, min((i+1)*p.grain, p.n))
	}
	return true
}

// steal runs what is left of worker w's part, from its end on, and says whether to go on.
func (j *job) steal(s *scratch, w int, at stage) bool {
	for {
		got := j.parts[w].grab(at.number, j.partOf(w, at.phase), true)
		if got.from == got.to {
			return true
		}
		if !j.runOf(s, w, at, got) {
			return false
		}
	}
}

// runOf runs what was taken of worker w's part, and tells it so whatever becomes of it.
func (j *job) runOf(s *scratch, w int, at stage, got taken) (goOn bool) {
	defer func() {
		if v := recover(); v != nil {
			j.fail(v) // before its owner goes on
			goOn = false
		}
		j.parts[w].give(at.number)
	}()
	return j.run(s, at.phase, got)
}

// give counts a run that its owner may be waiting for.
func (p *part) give(number uint64) {
	for {
		seen := p.given.Load()
		next := seen + 1
		if seen>>endBits != number {
			next = number<<endBits | 1
		}
		if p.given.CompareAndSwap(seen, next) {
			return
		}
	}
}

// given returns when so many runs that others took of worker me's part are done, and says whether to go on. Others may be at a later
// stage already, if they did not see that it takes part.
func (j *job) given(me int, number uint64, stolen int) bool {
	for spun := 0; stolen > 0 && j.parts[me].given.Load() < number<<endBits|uint64(stolen); spun++ {
		if j.failed.Load() != nil {
			return false
		}
		if spun > glances {
			runtime.Gosched()
		}
	}
	return true
}

// partOf is the runs of a phase that worker w begins with.
func (j *job) partOf(w, phase int) span {
	runs := j.phases[phase].runs()
	return span{runs * w / len(j.parts), runs * (w + 1) / len(j.parts)}
}

// taken is runs [from, to) of a part whose rest went up to end, and how many of its last ones others took.
type taken struct{ from, to, end, stolen int }

// grabOwn takes half of what is left of worker me's own part.
func (j *job) grabOwn(me int, at stage) taken {
	return j.parts[me].grab(at.number, j.partOf(me, at.phase), false)
}

// grab takes the first half of what is left of a part, or its last run; nothing where nothing is left. The part had all of its runs at
// first.
func (p *part) grab(number uint64, all span, last bool) taken {
	for {
		seen := p.ends.Load()
		from, to := int(seen>>endBits&maxRuns), int(seen&maxRuns)
		switch other := seen >> (2 * endBits); {
		case other > number: // others are at a later phase
			return taken{}
		case other < number:
			from, to = all.from, all.to
		}
		if from >= to {
			return taken{stolen: all.to - to}
		}
		got, left := taken{from, from + (to-from+1)/2, to, 0}, span{from + (to-from+1)/2, to}
		if last {
			got, left = taken{to - 1, to, to, 0}, span{from, to - 1}
		}
		if p.ends.CompareAndSwap(seen, number<<(2*endBits)|uint64(left.from)<<endBits|uint64(left.to)) {
			return got
		}
	}
}

// meet returns when all workers who take part have come to a stage, and says whether to go on. One who comes later finds no runs of the
// phases before. Of those who do not come soon it takes runs of the phase before.
func (j *job) meet(s *scratch, me int, at stage) bool {
	for w := range j.seats {
		if w == me || j.comes(w, at.number) {
			continue
		}
		if !j.steal(s, w, stage{at.number - 1, at.phase - 1}) {
			return false
		}
		j.await(w, at.number)
	}
	return true
}

// comes looks for a moment whether worker w comes to a stage.
func (j *job) comes(w int, number uint64) bool {
	for range glances {
		if j.here(w, number) {
			return true
		}
	}
	return false
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
	j.watch(func() bool { return j.here(w, number) })
}

// watch returns when something is so that others bring about.
func (j *job) watch(is func() bool) {
	for start := (time.Time{}); start.IsZero() || time.Since(start) < soon; runtime.Gosched() {
		for range glances {
			if is() {
				return
			}
		}
		if start.IsZero() {
			start = time.Now()
		}
	}
	for !is() {
		time.Sleep(nap)
	}
}

// here says that worker w need not be waited for.
func (j *job) here(w int, number uint64) bool {
	at := j.seats[w].at.Load()
	return at >= number || at>>phaseBits != number>>phaseBits
}

// takesPart says that worker w is in a stage's turn, and sees to its own part.
func (j *job) takesPart(w int, number uint64) bool {
	return j.seats[w].at.Load()>>phaseBits == number>>phaseBits
}
