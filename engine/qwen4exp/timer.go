package qwen4exp

import (
	"time"

	"lector/engine"
	"lector/engine/ops"
)

// timer counts the time of a run by part. Of a backend that runs late the parts are the device's own time; of any
// other, whose operations have run when they return, the host's between two changes of part.
type timer struct {
	late   ops.Late // nil: operations have run when they return
	spent  [ops.Parts]time.Duration
	before [ops.Parts]time.Duration // of late, at the start
	ngram  time.Duration            // the host's wait for n-gram rows
	part   ops.Part                 // under way
	last   time.Time                // of the last change of part
	failed error                    // of a wait whose caller could not return it
	begin  ops.Beginner             // late, where telling parts apart holds it up, else nil
	kind   *shares                  // of a pass that may be sampled, else nil
	coarse bool                     // the parts are not measured but shared out
}

// sampled is of how many like passes of few rows the parts are measured once: to tell them apart holds a device up.
const sampled = 16

// shares is what the parts had of the last pass of a kind that was measured.
type shares struct {
	passes int
	of     [ops.Parts]float64
}

// sample lets a pass of few rows be one of those that are measured only now and then.
func (t *timer) sample(kind *shares) {
	if t.begin == nil {
		return
	}
	t.kind, t.coarse = kind, kind.passes%sampled != 0
	kind.passes++
}

// split shares out what a pass took that was not measured by its parts, and remembers what one had that was.
func (t *timer) split() {
	if t.kind == nil {
		return
	}
	total := time.Duration(0)
	for _, spent := range t.spent {
		total += spent
	}
	for part := range t.spent {
		if t.coarse {
			t.spent[part] = time.Duration(t.kind.of[part] * float64(total))
		} else {
			t.kind.of[part] = float64(t.spent[part]) / float64(max(total, 1))
		}
	}
}

func newTimer(be ops.Backend) *timer {
	t := &timer{last: time.Now()}
	if late, ok := be.(ops.Late); ok {
		t.late, t.before = late, late.Spent()
		t.begin, _ = be.(ops.Beginner)
		late.Mark(ops.PartOther)
	}
	return t
}

// enter counts what has passed as the part under way, and goes on with another.
func (t *timer) enter(part ops.Part) {
	now := time.Now()
	switch {
	case t.coarse:
		t.begin.Begin()
	case t.late != nil:
		t.late.Mark(part)
	default:
		t.spent[t.part] += now.Sub(t.last)
	}
	t.last, t.part = now, part
}

// gathered counts the time since start as the wait for n-gram rows and as no other part.
func (t *timer) gathered(start time.Time) {
	d := time.Since(start)
	t.ngram += d
	t.last = t.last.Add(d)
	if host, ok := t.late.(ops.Clocked); ok {
		host.Waited(d)
	}
}

// report fills in the parts once everything was waited for, given the time of the whole. Other is what is left, so
// that they add up; where the host waited for rows while a device worked it may fall below zero by that time.
func (t *timer) report(s *engine.ChunkStats, whole time.Duration) {
	if t.late != nil {
		for part, spent := range t.late.Spent() {
			t.spent[part] = spent - t.before[part]
		}
		t.split()
	}
	s.Seconds, s.Ngram = whole.Seconds(), t.ngram.Seconds()
	s.Delta, s.Attention = t.spent[ops.PartDelta].Seconds(), t.spent[ops.PartAttention].Seconds()
	s.Experts, s.MTP = t.spent[ops.PartExperts].Seconds(), t.spent[ops.PartMTP].Seconds()
	s.Other = s.Seconds - s.Delta - s.Attention - s.Experts - s.MTP - s.Ngram
}
