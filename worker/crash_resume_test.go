package worker_test

import (
	"strings"
	"testing"

	"lector/cache/s3/s3test"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// keeping is an order for so many tokens whose state is kept.
func keeping(tokens int) queue.ResumeOrder {
	return queue.ResumeOrder{Text: "and then", MaxTokens: tokens, Drafts: 2, Keep: true}
}

// A resume that keeps its state, killed at every effect, gives the same text and the same handle.
func TestResumeCrashAtEveryEffect(t *testing.T) {
	resumeCrashes{tokens: 21, order: keeping(12), least: 18, world: inMemory(false), bubble: true}.run(t)
}

// So does one of a handle that holds token ids alone, and what it has read again and stored is not read twice.
func TestResumeWithoutStateCrashAtEveryEffect(t *testing.T) {
	resumeCrashes{tokens: 29, alone: true, order: keeping(12), least: 27, world: inMemory(false), bubble: true}.run(t)
}

// So does one that keeps token ids alone.
func TestKeepWithoutStateCrashAtEveryEffect(t *testing.T) {
	order := keeping(12)
	order.KeepState = queue.KeepNone
	resumeCrashes{tokens: 21, order: order, least: 14, world: inMemory(false), bubble: true}.run(t)
}

// So do all of them where the store takes one cell while the text goes on.
func TestKeepCrashAtEveryEffectBehindDecode(t *testing.T) {
	resumeCrashes{tokens: 21, order: keeping(22), least: 35, world: inMemory(true), bubble: true}.run(t)
	resumeCrashes{tokens: 29, alone: true, order: keeping(22), least: 40, world: inMemory(true), bubble: true}.run(t)
}

// On a store in a folder, which stages by itself, the next process has a view of its own; it leaves the same objects as one
// that nobody killed.
func TestKeepCrashAtEveryEffectOnDir(t *testing.T) {
	resumeCrashes{tokens: 21, order: keeping(12), least: 25, world: inScratch}.run(t)
	resumeCrashes{tokens: 2 * enginetest.ToyGrid, alone: true, order: keeping(6), least: 25, world: inScratch}.run(t)
}

// The same on S3, with a spool on a disk that outlives the process that is killed.
func TestKeepCrashAtEveryEffectOnS3(t *testing.T) {
	resumeCrashes{tokens: 21, order: keeping(12), least: 25, world: inBucket(s3test.Start(t))}.run(t)
}

// So do those on S3 that keep token ids alone, or go on from such a handle.
func TestKeepWithoutStateCrashAtEveryEffectOnS3(t *testing.T) {
	server := s3test.Start(t)
	order := keeping(12)
	order.KeepState = queue.KeepNone
	resumeCrashes{tokens: 21, order: order, least: 14, world: inBucket(server)}.run(t)
	resumeCrashes{tokens: 2 * enginetest.ToyGrid, alone: true, order: keeping(6), least: 25, world: inBucket(server)}.run(t)
}

// resumeCrashes kills a resume at every effect.
type resumeCrashes struct {
	tokens int
	alone  bool // of a handle that holds token ids alone
	order  queue.ResumeOrder
	world  func(*rig) world
	bubble bool // time is not real, and processes die after effects, too: to another world that is the next one's "before"
	least  int  // effects
}

func (c resumeCrashes) run(t *testing.T) {
	life := &mortal{}
	var want worker.Result
	inTime(t, c.bubble, func(t *testing.T) {
		r := newRig(t)
		w := c.world(r)
		want = c.die(r, w, life)
		w.check(c.plain)
	})
	for _, at := range life.effects {
		if !c.alone && strings.Contains(at, "/rolling/") {
			t.Errorf("%s: nobody goes on from a state within the text", at)
		}
		for _, after := range []bool{false, true}[:1+one(c.bubble)] {
			inTime(t, c.bubble, func(t *testing.T) {
				if !c.bubble {
					t.Parallel()
				}
				c.hold(t, want, &mortal{at: at, after: after})
			})
		}
	}
	if n := len(life.effects); n < c.least {
		t.Errorf("a resume had only %d effects", n)
	}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// hold lets a process die and holds what comes of it against what came of one that did not.
func (c resumeCrashes) hold(t *testing.T, want worker.Result, life *mortal) {
	r := newRig(t)
	w := c.world(r)
	got := c.die(r, w, life)
	if got.Text != want.Text || got.HandleDigest != want.HandleDigest || got.Usage.Prefilled != want.Usage.Prefilled {
		t.Errorf("died at %s (after: %v): %+v, want %+v", life.at, life.after, got, want)
	}
	if u := got.Usage; u.Restored+u.Reread != c.tokens {
		t.Errorf("died at %s (after: %v): %+v of %d tokens", life.at, life.after, u, c.tokens)
	}
	w.check(c.plain)
}

// plain does the same where nobody dies and nothing is staged.
func (c resumeCrashes) plain(r *rig) { c.die(r, inMemory(false)(r), &mortal{}) }

// die kills one process at one effect, if it has a name, and returns what the next one makes of it.
func (c resumeCrashes) die(r *rig, w world, life *mortal) (got worker.Result) {
	r.Helper()
	o := worker.IngestOptions{}
	if c.alone {
		o = none()
	}
	from := r.submit(r.ingestJobIn(w.store(), prose(c.tokens), o))
	work := func(life *mortal) {
		p, end := r.process(w, life)
		defer end()
		r.turn(p)
	}
	work(nil)
	job := r.resumeJob(r.receipt(from).HandleDigest, c.order)
	job.ID = "resume-again" // effects are found by their names
	id := r.submit(job)
	before := r.toy.Prefilled()
	work(life)
	if life.at != "" {
		if !life.dead {
			r.Fatalf("%s did not happen", life.at)
		}
		r.queue = r.queue.Restart()
		if r.queue.Pending() > 0 {
			work(nil)
		}
		if n := r.queue.Pending(); n > 0 {
			r.Errorf("%d jobs are left, job is %+v", n, r.status(id))
		}
	}
	r.result(id, &got)
	r.story(id, got)
	// What was under way may be lost, and with it what is on its way; the prompt is read from the handle on again.
	lost, prompt := 2*enginetest.ToyGrid, len(encode(r.T, c.order.Text))
	if did := r.toy.Prefilled() - before; c.alone && did > c.tokens+lost+2*prompt {
		r.Errorf("died at %s (after: %v): %d tokens were read of %d and a prompt of %d", life.at, life.after, did, c.tokens, prompt)
	}
	if left := namesOf(r, w.store(), "default/rolling/"); len(left) > 0 {
		r.Errorf("died at %s (after: %v): %v is left", life.at, life.after, left)
	}
	return got
}
