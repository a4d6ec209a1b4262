package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"lector/engine"
	"lector/queue"
)

// progress shows how far a document is read: a bar on a terminal, plain lines otherwise.
type progress struct {
	app   *app
	start time.Time
	bars  *mpb.Progress
	bar   *mpb.Bar
	from  int // tokens restored
}

func newProgress(a *app) *progress { return &progress{app: a, start: time.Now()} }

// heard takes an event of the job.
func (p *progress) heard(e queue.Event) {
	switch e.Type {
	case queue.EventRestored:
		p.from = e.Tokens
		if e.Tokens > 0 {
			p.app.note("restored %d of %d tokens: they were read before", e.Tokens, e.Total)
		}
		p.show(e)
	case queue.EventProgress:
		p.show(e)
	case queue.EventRetry:
		p.end()
		p.app.note("attempt %d failed: %s; trying again", e.Attempt, e.Reason)
	case queue.EventAlarm:
		p.end()
		if e.Alarm != nil {
			p.app.note("ALARM: %s", alarmText(*e.Alarm))
		}
	case queue.EventDone, queue.EventFailed, queue.EventEnded:
		p.end()
	}
}

// alarmText says what differs, for whoever has to find out which of two hosts computes what it should not.
func alarmText(a queue.Alarm) string {
	where := ""
	if a.Of == "node" {
		where = fmt.Sprintf(", tokens [%d, %d), %s", a.From, a.To, a.Part)
	}
	return fmt.Sprintf("two computations differ: %s %s%s: stored %s, computed on %s %s; what was stored stands",
		a.Of, a.Key, where, a.Stored, a.Host, a.Computed)
}

func (p *progress) show(e queue.Event) {
	if p.app.terminal() {
		p.showBar(e)
	} else if e.Type == queue.EventProgress {
		p.app.note("read %d of %d tokens, %s", e.Tokens, e.Total, p.rate(e.Tokens))
	}
	if p.app.verbose && e.Type == queue.EventProgress {
		p.showStats(e)
	}
}

func (p *progress) showBar(e queue.Event) {
	if p.bar == nil {
		p.bars = mpb.New(mpb.WithOutput(p.app.err), mpb.WithWidth(48))
		p.bar = p.bars.AddBar(int64(e.Total),
			mpb.PrependDecorators(decor.Name("reading "), decor.CountersNoUnit("%d of %d tokens")),
			mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string { return p.rate(int(s.Current)) })),
		)
	}
	p.bar.SetCurrent(int64(e.Tokens))
}

// rate is how fast tokens are computed, restored ones left out.
func (p *progress) rate(tokens int) string {
	seconds := time.Since(p.start).Seconds()
	return fmt.Sprintf("%.0f tokens/s", float64(tokens-p.from)/max(seconds, 1e-3))
}

// showStats says where a chunk's time went.
func (p *progress) showStats(e queue.Event) {
	var s engine.ChunkStats
	if json.Unmarshal(e.Stats, &s) != nil {
		return // an event of another version
	}
	p.app.note("  chunk of %d: %.2f s = deltanet %.2f + attention %.2f + experts %.2f (%d records, %.1f MB) + mtp %.2f + n-grams %.3f + other %.3f; ring wait %.2f",
		s.Tokens, s.Seconds, s.Delta, s.Attention, s.Experts, s.Records, float64(s.RecordBytes)/1e6, s.MTP, s.Ngram, s.Other, s.RingWait)
}

// end takes the bar down.
func (p *progress) end() {
	endBar(p.bars, p.bar)
	p.bar, p.bars = nil, nil
}

// endBar takes a bar down, if there is one, and leaves on the screen what it shows.
func endBar(bars *mpb.Progress, bar *mpb.Bar) {
	if bar == nil {
		return
	}
	if !bar.Completed() {
		bar.Abort(false)
	}
	bars.Wait()
}
