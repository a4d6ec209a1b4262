package worker_test

import (
	"testing"
	"testing/synctest"

	"lector/cache/cachetest"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// A resume that keeps its state, killed at every effect, gives the same text and the same handle.
func TestResumeCrashAtEveryEffect(t *testing.T) {
	order := queue.ResumeOrder{Text: "and then", MaxTokens: 12, Drafts: 2, Keep: true}
	resumeCrashes{tokens: 21, order: order, least: 20}.run(t)
}

// So does one of a handle that holds token ids alone, and what it has read again and stored is not read twice.
func TestResumeWithoutStateCrashAtEveryEffect(t *testing.T) {
	order := queue.ResumeOrder{Text: "and then", MaxTokens: 12, Drafts: 2, Keep: true}
	resumeCrashes{tokens: 29, alone: true, order: order, least: 30}.run(t)
}

// So does one that keeps token ids alone.
func TestKeepWithoutStateCrashAtEveryEffect(t *testing.T) {
	order := queue.ResumeOrder{Text: "and then", MaxTokens: 12, Drafts: 2, Keep: true, KeepState: queue.KeepNone}
	resumeCrashes{tokens: 21, order: order, least: 14}.run(t)
}

// So do all of them where the store takes one cell while the text goes on.
func TestKeepCrashAtEveryEffectBehindDecode(t *testing.T) {
	order := queue.ResumeOrder{Text: "and then", MaxTokens: 22, Drafts: 2, Keep: true}
	resumeCrashes{tokens: 21, order: order, spooled: true, least: 40}.run(t)
	resumeCrashes{tokens: 29, alone: true, order: order, spooled: true, least: 45}.run(t)
}

// resumeCrashes kills a resume at every effect.
type resumeCrashes struct {
	tokens  int
	alone   bool // of a handle that holds token ids alone
	order   queue.ResumeOrder
	spooled bool
	least   int // effects
}

func (c resumeCrashes) run(t *testing.T) {
	var want worker.Result
	effects := []string{""}
	for i := 0; i < len(effects); i++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				life := &mortal{at: effects[i], after: after}
				got := c.die(newRig(t), life)
				if i == 0 {
					if len(effects) == 1 {
						effects, want = append(effects, life.effects...), got
					}
					return
				}
				if got.Text != want.Text || got.HandleDigest != want.HandleDigest || got.Usage.Prefilled != want.Usage.Prefilled {
					t.Errorf("died at %s (after: %v): %+v, want %+v", life.at, after, got, want)
				}
				if u := got.Usage; u.Restored+u.Reread != c.tokens {
					t.Errorf("died at %s (after: %v): %+v of %d tokens", life.at, after, u, c.tokens)
				}
			})
		}
	}
	if n := len(effects) - 1; n < c.least {
		t.Errorf("a resume had only %d effects", n)
	}
}

// die kills one process at one effect, if it has a name, and returns what the next one makes of it.
func (c resumeCrashes) die(r *rig, life *mortal) (got worker.Result) {
	r.Helper()
	o := worker.IngestOptions{}
	if c.alone {
		o = none()
	}
	from := r.submit(r.ingestJob(prose(c.tokens), o))
	r.turn(r.Worker)
	job := r.resumeJob(r.receipt(from).HandleDigest, c.order)
	job.ID = "resume-again" // effects are found by their names
	id := r.submit(job)
	doomed := r.another(r.toy)
	doomed.Queue, doomed.Space.Store = mortalQueue{r.queue, life}, mortalStore{r.store, life}
	lost := enginetest.ToyGrid
	if c.spooled {
		spool := cachetest.NewSpool(doomed.Space.Store, 1<<20)
		doomed.Space.Spool = mortalStager{spool, life, false}
		lost *= 2 // the cell that is on its way, too
	}
	before := r.toy.Prefilled()
	r.turn(doomed)
	if life.at != "" {
		if !life.dead {
			r.Fatalf("%s did not happen", life.at)
		}
		r.revive(id)
	}
	r.result(id, &got)
	r.story(id, got)
	// What was under way may be lost, and the prompt is read from the handle on again.
	prompt := len(encode(r.T, c.order.Text))
	if did := r.toy.Prefilled() - before; c.alone && did > c.tokens+lost+2*prompt {
		r.Errorf("died at %s (after: %v): %d tokens were read of %d and a prompt of %d", life.at, life.after, did, c.tokens, prompt)
	}
	for _, name := range r.store.Names() {
		if kindOf(name) == "rolling" {
			r.Errorf("died at %s (after: %v): %s is left", life.at, life.after, name)
		}
	}
	return got
}
