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
}

func newTimer(be ops.Backend) *timer {
	t := &timer{last: time.Now()}
	if late, ok := be.(ops.Late); ok {
		t.late, t.before = late, late.Spent()
		late.Mark(ops.PartOther)
	}
	return t
}

// enter counts what has passed as the part under way, and goes on with another.
func (t *timer) enter(part ops.Part) {
	now := time.Now()
	if t.late != nil {
		t.late.Mark(part)
	} else {
		t.spent[t.part] += now.Sub(t.last)
	}
	t.last, t.part = now, part
}

// gathered counts the time since start as the wait for n-gram rows and as no other part.
func (t *timer) gathered(start time.Time) {
	d := time.Since(start)
	t.ngram += d
	t.last = t.last.Add(d)
}

// report fills in the parts once everything was waited for, given the time of the whole. Other is what is left, so
// that they add up; where the host waited for rows while a device worked it may fall below zero by that time.
func (t *timer) report(s *engine.ChunkStats, whole time.Duration) {
	if t.late != nil {
		for part, spent := range t.late.Spent() {
			t.spent[part] = spent - t.before[part]
		}
	}
	s.Seconds, s.Ngram = whole.Seconds(), t.ngram.Seconds()
	s.Delta, s.Attention = t.spent[ops.PartDelta].Seconds(), t.spent[ops.PartAttention].Seconds()
	s.Experts, s.MTP = t.spent[ops.PartExperts].Seconds(), t.spent[ops.PartMTP].Seconds()
	s.Other = s.Seconds - s.Delta - s.Attention - s.Experts - s.MTP - s.Ngram
}
