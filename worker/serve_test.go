package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// serve runs a worker beside the test and returns how it is told to stop, and what it ends with.
func (r *rig) serve(w *worker.Worker, slots worker.Slots) (stop context.CancelFunc, ended <-chan error) {
	ctx, cancel := context.WithCancel(r.Context())
	end := make(chan error, 1)
	go func() { end <- w.Serve(ctx, slots) }()
	return cancel, end
}

// slow makes every chunk and every token take its time.
func slow(toy *enginetest.Toy, chunk, token time.Duration) {
	toy.BeforePrefill = func(context.Context, int, []engine.Token) error { time.Sleep(chunk); return nil }
	toy.BeforeDecode = func(context.Context, int, []engine.Token) error { time.Sleep(token); return nil }
}

// A resume does not wait for a document that is being read, and a drain gives the document back at a boundary.
func TestServeKindsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		slow(r.toy, time.Second, 10*time.Millisecond)
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Ingest: 1, queue.Resume: 2})
		document := r.submit(r.ingestJob(prose(400), worker.IngestOptions{}))
		ids := []string{
			r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 9})),
			r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 9})),
		}
		time.Sleep(10*time.Second + 300*time.Millisecond)
		for _, id := range ids {
			var got worker.Result
			r.result(id, &got)
			r.story(id, got)
		}
		if s := r.status(document); s.State != queue.Running {
			t.Fatalf("the document is %s", s.State)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if s := r.status(document); s.State != queue.Queued || s.Attempts != 0 {
			t.Errorf("after the drain the document is %s with %d attempts", s.State, s.Attempts)
		}
		done := r.toy.Prefilled()
		slow(r.toy, 0, 0)
		r.turn(r.Worker)
		if got := r.receipt(document); got.Tokens.Restored == 0 || got.Tokens.Computed != 400-got.Tokens.Restored || done != 20+got.Tokens.Restored-16 { // two cells were there before
			t.Errorf("after the drain %+v, having read %d before it", got.Tokens, done)
		}
		if r.toy.Open() != 0 {
			t.Errorf("%d sequences are open", r.toy.Open())
		}
	})
}

// What ends one slot ends them all, with its error.
func TestServeEnds(t *testing.T) {
	r := newRig(t)
	gone := errors.Join(queue.ErrClosed, engine.ErrDevice)
	r.queue.Fail(queuetest.Rule{Op: "Next", Nth: 2, Err: gone})
	if err := r.Serve(t.Context(), worker.Slots{queue.Ingest: 1, queue.Resume: 3}); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("ends with %v", err)
	}
	if err := r.Serve(t.Context(), nil); !errors.Is(err, worker.ErrInput) {
		t.Errorf("without a slot: %v", err)
	}
}

// watched tells which sequence of an engine computes, and how long.
type watched struct {
	engine.Engine
	mu    *sync.Mutex
	opens *int
	steps *[]step
}

type step struct {
	seq    int
	doc    bool // it reads a document or a prompt
	from   time.Time
	length time.Duration
}

func watch(e engine.Engine) watched { return watched{e, &sync.Mutex{}, new(int), new([]step)} }

func (w watched) NewSequence(capacity int) (engine.Sequence, error) {
	s, err := w.Engine.NewSequence(capacity)
	w.mu.Lock()
	defer w.mu.Unlock()
	*w.opens++
	return watchedSequence{s, w, *w.opens}, err
}

type watchedSequence struct {
	engine.Sequence
	watched
	id int
}

func (s watchedSequence) note(doc bool, from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.steps = append(*s.steps, step{s.id, doc, from, time.Since(from)})
}

func (s watchedSequence) Prefill(ctx context.Context, tokens []engine.Token, next *engine.Token) (engine.Step, error) {
	defer s.note(true, time.Now())
	return s.Sequence.Prefill(ctx, tokens, next)
}

func (s watchedSequence) Decode(ctx context.Context, tokens []engine.Token, choose engine.Choose) (engine.Decoded, error) {
	defer s.note(false, time.Now())
	return s.Sequence.Decode(ctx, tokens, choose)
}

// Resumes go round: between two steps of one, each other that is live has one. None runs beside another.
func TestResumesGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		slow(r.toy, 10*time.Millisecond, 10*time.Millisecond)
		seen := watch(r.toy)
		r.Engine = seen
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: 3})
		var ids []string
		for i := range 3 {
			ids = append(ids, r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{Text: fmt.Sprint("variant ", i), MaxTokens: 30, Drafts: i})))
		}
		for _, id := range ids {
			r.await(id)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(*seen.steps); i++ {
			if before := (*seen.steps)[i-1]; (*seen.steps)[i].from.Before(before.from.Add(before.length)) {
				t.Errorf("step %d begins before the one before it ends", i)
			}
		}
		steps := slices.DeleteFunc(slices.Clone(*seen.steps), func(s step) bool { return s.doc })
		first, last := map[int]int{}, map[int]int{} // of each sequence
		for i, s := range steps {
			last[s.seq] = i
			if _, begun := first[s.seq]; !begun {
				first[s.seq] = i
			}
		}
		checked := 0
		for i, s := range steps {
			var between []int
			for j := i + 1; j < len(steps) && steps[j].seq != s.seq; j++ {
				between = append(between, steps[j].seq)
			}
			if i == last[s.seq] {
				continue
			}
			checked++
			if slices.Sort(between); len(slices.Compact(slices.Clone(between))) != len(between) {
				t.Errorf("between steps %d and the next of sequence %d, others went: %v", i, s.seq, between)
			}
			for seq, end := range last {
				if seq != s.seq && first[seq] < i && end > i+len(between) && !slices.Contains(between, seq) {
					t.Errorf("after step %d sequence %d had no turn before %d went again", i, seq, s.seq)
				}
			}
		}
		if t.Failed() {
			for i, s := range steps {
				t.Logf("%d: sequence %d from %s for %v, document %v", i, s.seq, s.from.Format("05.000"), s.length, s.doc)
			}
		}
		if checked < 30 {
			t.Errorf("only %d steps were compared", checked)
		}
	})
}

// await returns when a job is final.
func (r *rig) await(id string) {
	r.Helper()
	err := r.queue.Follow(r.Context(), id, func(e queue.Event) bool { return e.Type != queue.EventDone && e.Type != queue.EventFailed })
	if err != nil {
		r.Fatal(err)
	}
}

// While a document is read and a text is made, each has half of the engine's time, though a chunk takes a hundred
// times as long as a token and a text has one token at a time to ask for.
func TestKindsShareTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		slow(r.toy, time.Second, 10*time.Millisecond)
		r.toy.Stops = []engine.Token{}
		seen := watch(r.toy)
		r.Engine = seen
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: 1, queue.Ingest: 1})
		r.submit(r.ingestJob(prose(400), worker.IngestOptions{}))
		text := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 350, Stop: []string{"\x00"}, Sampling: queue.Sampling{Temperature: 0.01}}))
		r.await(text)
		stop()
		<-ended
		var doc, resume time.Duration
		for _, s := range *seen.steps {
			if s.doc {
				doc += s.length
			} else {
				resume += s.length
			}
		}
		if resume < 3*time.Second || doc < resume-1100*time.Millisecond || doc > resume+2100*time.Millisecond {
			t.Errorf("the document had %v, the text %v", doc, resume)
		}
	})
}

// Attempts wait for memory in the order of asking; what can never fit is refused by name.
func TestMemoryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		large, err := r.toy.SequenceBytes(400)
		if err != nil {
			t.Fatal(err)
		}
		r.toy.Memory = large + large/2
		slow(r.toy, 0, time.Second)
		r.Config.Attempts = 1
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: 4})
		for range 5 {
			r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 380, Stop: []string{"\x00"}}))
		}
		small := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 3}))
		most := 0
		for range 1000 {
			time.Sleep(time.Second)
			most = max(most, r.toy.Open())
		}
		if most != 1 && most != 2 || r.queue.Pending() != 0 {
			t.Errorf("%d sequences were open at once, %d jobs are left", most, r.queue.Pending())
		}
		var got worker.Result
		r.result(small, &got)
		huge := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 4000}))
		r.await(huge)
		synctest.Wait() // for its settlement
		if dead := r.dead(huge, "attempts"); !strings.Contains(dead.Reason, "memory budget too small") || !strings.Contains(dead.Reason, "4020 tokens") {
			t.Errorf("dead letter is %+v", dead)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A worker that waits for memory can be told to stop.
func TestDrainWhileWaitingForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		r.toy.Memory, _ = r.toy.SequenceBytes(60)
		block := make(chan struct{})
		r.toy.BeforeDecode = func(context.Context, int, []engine.Token) error { <-block; return nil }
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: 2})
		ids := []string{
			r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 30})),
			r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 30})),
		}
		synctest.Wait()
		stop()
		synctest.Wait()
		close(block)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if s := r.status(id); s.State != queue.Queued || s.Attempts != 0 {
				t.Errorf("job %s is %s with %d attempts", id, s.State, s.Attempts)
			}
		}
		if r.toy.Open() != 0 {
			t.Errorf("%d sequences are open", r.toy.Open())
		}
	})
}

// A job that makes the worker panic is a dead letter with what was said; the worker goes on with the others.
func TestPanicIsTheJobsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(20))
		r.toy.BeforePrefill = func(_ context.Context, _ int, tokens []engine.Token) error {
			if slices.Contains(tokens, 201) {
				panic("poison at 201")
			}
			return nil
		}
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: 1, queue.Ingest: 1})
		document := r.submit(r.ingestJob(append(prose(30), 201), worker.IngestOptions{}))
		prompt := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{Tokens: []int32{201}}))
		good := r.submit(r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 3}))
		next := r.submit(r.ingestJob(prose(40), worker.IngestOptions{}))
		for _, id := range []string{document, prompt, good, next} {
			r.await(id)
		}
		synctest.Wait()
		for id, lastGood := range map[string]int{document: 24, prompt: 20} {
			if dead := r.dead(id, "panic"); !strings.Contains(dead.Reason, "poison at 201") || dead.LastGood != lastGood {
				t.Errorf("dead letter is %+v", dead)
			}
		}
		var got worker.Result
		r.result(good, &got)
		r.receipt(next)
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if r.toy.Open() != 0 {
			t.Errorf("%d sequences are open", r.toy.Open())
		}
	})
}

// A worker with a full disk takes nothing until there is room, and begins no document that would fill it.
func TestDiskAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		info := r.toy.Info()
		var free atomic.Int64
		r.Disk = &worker.Disk{Free: func() (int64, error) { return free.Load(), nil }, Least: 1000, Holds: true}
		free.Store(999)
		stop, ended := r.serve(r.Worker, worker.Slots{queue.Ingest: 1})
		id := r.submit(r.ingestJob(prose(20), worker.IngestOptions{}))
		time.Sleep(time.Minute)
		if s := r.status(id); s.State != queue.Queued || s.Attempts != 0 {
			t.Fatalf("with a full disk the job is %s after %d attempts", s.State, s.Attempts)
		}
		free.Store(1000 + int64(20*info.BytesPerToken))
		time.Sleep(10 * time.Second)
		events := r.queue.Events(id)
		if s := r.status(id); s.State.Final() || s.Attempts == 0 || !strings.Contains(events[len(events)-1].Reason, "disk is nearly full") {
			t.Fatalf("with a disk that the document would fill the job is %s after %d attempts: %+v", s.State, s.Attempts, events[len(events)-1])
		}
		free.Store(1 << 30)
		r.await(id)
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		r.receipt(id)
		if r.toy.Open() != 0 {
			t.Errorf("%d sequences are open", r.toy.Open())
		}
	})
}

// Texts that are made by turns are those that are made alone, to the bit, whatever comes when.
func TestByTurnsEqualsAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type asking struct {
			order queue.ResumeOrder
			after time.Duration
		}
		var asked []asking
		for range rapid.IntRange(2, 4).Draw(rt, "resumes") {
			asked = append(asked, asking{
				queue.ResumeOrder{
					Text: rapid.StringMatching(`[a-d ]{0,12}`).Draw(rt, "prompt"), MaxTokens: rapid.IntRange(1, 8).Draw(rt, "tokens"),
					Drafts: rapid.IntRange(0, 3).Draw(rt, "drafts"), Branches: rapid.IntRange(0, 2).Draw(rt, "branches"), Sampling: warm(),
				},
				time.Duration(rapid.IntRange(0, 200).Draw(rt, "after")) * time.Millisecond,
			})
		}
		slots, fails := rapid.IntRange(1, 4).Draw(rt, "slots"), rapid.IntRange(0, 25).Draw(rt, "device fails at")
		memory := rapid.Bool().Draw(rt, "memory for one")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			from := r.ingest(prose(43))
			var want []worker.Result
			for _, a := range asked {
				want = append(want, r.resume(from.HandleDigest, a.order))
			}
			slow(r.toy, 20*time.Millisecond, 7*time.Millisecond)
			n, steps := 0, r.toy.BeforeDecode
			r.toy.BeforeDecode = func(ctx context.Context, i int, tokens []engine.Token) error {
				if n++; n == fails {
					return engine.ErrDevice
				}
				return steps(ctx, i, tokens)
			}
			if memory {
				bytes, err := r.toy.SequenceBytes(80)
				if err != nil {
					t.Fatal(err)
				}
				r.toy.Memory = bytes + int64(r.toy.Info().FixedBytes)
			}
			stop, ended := r.serve(r.Worker, worker.Slots{queue.Resume: slots, queue.Ingest: 1})
			r.submit(r.ingestJob(prose(60), worker.IngestOptions{}))
			var ids []string
			for _, a := range asked {
				time.Sleep(a.after)
				ids = append(ids, r.submit(r.resumeJob(from.HandleDigest, a.order)))
			}
			for i, id := range ids {
				r.await(id)
				var got worker.Result
				r.result(id, &got)
				r.story(id, got)
				if got.Text != want[i].Text || !equalIDs(got.IDs, want[i].IDs) || len(got.Branches) != len(want[i].Branches) {
					t.Errorf("by turns %q, alone %q", got.Text, want[i].Text)
				}
				for j, b := range got.Branches {
					if b.Text != want[i].Branches[j].Text || !equalIDs(b.IDs, want[i].Branches[j].IDs) {
						t.Errorf("branch %d by turns %q, alone %q", j, b.Text, want[i].Branches[j].Text)
					}
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if r.toy.Open() != 0 {
				t.Errorf("%d sequences are open", r.toy.Open())
			}
		})
	})
}
