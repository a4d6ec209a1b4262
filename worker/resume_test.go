package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"lector/cache"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

func encode(t *testing.T, text string) []int32 {
	t.Helper()
	ids, err := enginetest.ToyTokenizer{}.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func decode(ids []int32) string {
	var out strings.Builder
	d := enginetest.ToyTokenizer{}.Decoder()
	for _, id := range ids {
		out.WriteString(d.Add(id))
	}
	return out.String() + d.Flush()
}

// Resuming equals not stopping, with any number of drafts, and prefills exactly the prompt.
func TestResumeEqualsNotStopping(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	prompt := " Then what happened?"
	want := r.plainText(append(slices.Clone(prose(43)), encode(t, prompt)...), 30)
	for drafts := 0; drafts <= engine.MaxDrafts; drafts++ {
		before := r.toy.Prefilled()
		got := r.resume(from.HandleDigest, queue.ResumeOrder{Text: prompt, MaxTokens: 30, Drafts: drafts})
		if !equalIDs(got.IDs, want) || got.Text != decode(want) {
			t.Fatalf("with %d drafts: %q %v, want %q %v", drafts, got.Text, got.IDs, decode(want), want)
		}
		n := len(encode(t, prompt))
		if got.Usage.Restored != 43 || got.Usage.Prefilled != n || r.toy.Prefilled()-before != n || got.Usage.Generated != len(want) {
			t.Errorf("with %d drafts: usage %+v, %d tokens prefilled for a prompt of %d", drafts, got.Usage, r.toy.Prefilled()-before, n)
		}
		if (got.Usage.Drafted > 0) != (drafts > 0) || (got.Usage.Accepted > 0) != (drafts > 0) || got.Usage.Accepted > got.Usage.Drafted {
			t.Errorf("with %d drafts: usage %+v", drafts, got.Usage)
		}
	}
	if r.toy.Open() != 0 {
		t.Errorf("%d sequences are open", r.toy.Open())
	}
}

func TestPrompts(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	chat, err := enginetest.ToyTokenizer{}.Chat([]engine.Message{{Role: "user", Content: "who?"}}, true)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		order queue.ResumeOrder
		ids   []int32
	}{
		"none":   {queue.ResumeOrder{}, nil}, // from the kept residual
		"text":   {queue.ResumeOrder{Text: "who?"}, encode(t, "who?")},
		"tokens": {queue.ResumeOrder{Tokens: []int32{5, 6, 7}}, []int32{5, 6, 7}},
		"chat":   {queue.ResumeOrder{Chat: []queue.Message{{Role: "user", Content: "who?"}}, Thinking: true}, chat},
		"long":   {queue.ResumeOrder{Tokens: prose(200)}, prose(200)},
	} {
		got := r.resume(from.HandleDigest, c.order)
		want := r.plainText(append(slices.Clone(prose(43)), c.ids...), 24)
		if !equalIDs(got.IDs, want) || got.Usage.Prefilled != len(c.ids) {
			t.Errorf("%s: %v with %d tokens prefilled, want %v with %d", name, got.IDs, got.Usage.Prefilled, want, len(c.ids))
		}
	}
}

func TestFinishReasons(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	whole := r.plainText(prose(43), 500) // to the stop id
	if len(whole) < 6 || len(whole) >= 500 {
		t.Fatalf("the toy's text has %d tokens: choose another document", len(whole))
	}
	for name, c := range map[string]struct {
		order  queue.ResumeOrder
		ids    int
		reason string
	}{
		"stop id":              {queue.ResumeOrder{MaxTokens: 1000}, len(whole), worker.FinishStop},
		"length":               {queue.ResumeOrder{MaxTokens: 5}, 5, worker.FinishLength},
		"capacity":             {queue.ResumeOrder{MaxTokens: 5, Capacity: 46}, 3, worker.FinishCapacity},
		"capacity is there":    {queue.ResumeOrder{MaxTokens: 5, Capacity: 43}, 0, worker.FinishCapacity},
		"length at capacity":   {queue.ResumeOrder{MaxTokens: 5, Capacity: 48}, 5, worker.FinishLength},
		"capacity with drafts": {queue.ResumeOrder{MaxTokens: 9, Capacity: 48, Drafts: 3}, 5, worker.FinishCapacity},
		"length with drafts":   {queue.ResumeOrder{MaxTokens: 4, Drafts: 3}, 4, worker.FinishLength},
		"stop id with drafts":  {queue.ResumeOrder{MaxTokens: 1000, Drafts: 3}, len(whole), worker.FinishStop},
	} {
		got := r.resume(from.HandleDigest, c.order)
		if !equalIDs(got.IDs, whole[:c.ids]) || got.FinishReason != c.reason || got.Text != decode(whole[:c.ids]) {
			t.Errorf("%s: %s after %v %q, want %s after %d tokens", name, got.FinishReason, got.IDs, got.Text, c.reason, c.ids)
		}
	}
}

// Every stop string that lies in the text cuts it there, wherever its tokens begin and end.
func TestStopStrings(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	text := decode(r.plainText(prose(43), 12))
	for at := 1; at+3 <= len(text); at++ {
		stop := text[at : at+3]
		cut := strings.Index(text, stop)
		for _, drafts := range []int{0, 3} {
			got := r.resume(from.HandleDigest, queue.ResumeOrder{MaxTokens: 12, Drafts: drafts, Stop: []string{"\x00never", stop}})
			if got.Text != text[:cut] || got.FinishReason != worker.FinishStop {
				t.Errorf("stop %q: %q (%s), want %q", stop, got.Text, got.FinishReason, text[:cut])
			}
		}
	}
	// What only looked like the beginning of a stop string comes out at the end.
	got := r.resume(from.HandleDigest, queue.ResumeOrder{MaxTokens: 12, Stop: []string{text[len(text)-3:] + "\x00"}})
	if got.Text != text || got.FinishReason != worker.FinishLength {
		t.Errorf("held back: %q (%s), want %q", got.Text, got.FinishReason, text)
	}
}

func TestSamplingIsDeterministic(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	hot := queue.Sampling{Temperature: 3, TopK: 50, TopP: 0.95}
	var texts []string
	for _, seed := range []uint64{7, 8} {
		for drafts := 0; drafts <= engine.MaxDrafts; drafts++ {
			job := r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 20, Drafts: drafts, Sampling: hot})
			job.Resume.Sampling.Seed = seed
			id := r.submit(job)
			r.turn(r.Worker)
			var got worker.Result
			r.result(id, &got)
			r.story(id, got)
			texts = append(texts, got.Text)
			if !utf8.ValidString(got.Text) || got.Seed != seed {
				t.Errorf("text %q of seed %d", got.Text, got.Seed)
			}
		}
	}
	for i := range 4 {
		if texts[i] != texts[0] || texts[4+i] != texts[4] {
			t.Errorf("with %d drafts the texts are %q and %q, without %q and %q", i, texts[i], texts[4+i], texts[0], texts[4])
		}
	}
	if texts[0] == texts[4] {
		t.Errorf("two seeds give %q", texts[0])
	}
}

// The head has rows without a token; they are never chosen.
func TestIdsWithoutTokenAreMasked(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	r.Config.Vocabulary = 120
	got := r.resume(from.HandleDigest, queue.ResumeOrder{MaxTokens: 60, Sampling: queue.Sampling{Temperature: 50}, Drafts: 3})
	if len(got.IDs) == 0 || slices.Max(got.IDs) >= 120 {
		t.Errorf("chosen ids are %v", got.IDs)
	}
}

func TestExtendedStateEqualsAnIngestOfTheSameIds(t *testing.T) {
	for name, c := range map[string]struct {
		document int
		order    queue.ResumeOrder
	}{
		"from a partial cell":   {43, queue.ResumeOrder{Text: "go on, please, for some cells", MaxTokens: 30, Drafts: 3}},
		"from a whole cell":     {40, queue.ResumeOrder{Text: "go on", MaxTokens: 20, Drafts: 1}},
		"within a cell":         {41, queue.ResumeOrder{Text: "a", MaxTokens: 2}},
		"nothing added":         {40, queue.ResumeOrder{MaxTokens: 1, Capacity: 40}},
		"to the stop id":        {43, queue.ResumeOrder{MaxTokens: 1000, Drafts: 3}},
		"to a stop string":      {43, queue.ResumeOrder{MaxTokens: 40, Drafts: 3, Stop: []string{"e", "a", "i"}}},
		"of less than one cell": {3, queue.ResumeOrder{MaxTokens: 2, Drafts: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			from := r.ingest(prose(c.document))
			c.order.Keep = true
			got := r.resume(from.HandleDigest, c.order)
			all := append(slices.Clone(prose(c.document)), encode(t, c.order.Text)...)
			all = append(all, got.IDs...)
			if n := len(encode(t, c.order.Text)); got.Usage.Prefilled != n {
				t.Errorf("%d tokens were prefilled for a prompt of %d", got.Usage.Prefilled, n)
			}
			apart := newRig(t)
			if want := apart.ingest(all); got.HandleDigest != want.HandleDigest || got.Handle != want.Handle {
				t.Errorf("handle is %s, an ingest of the same ids gives %s", got.Handle, want.Handle)
			}
			// The chain is whole: an ingest finds it, and a second turn goes on from it.
			before := r.toy.Prefilled()
			id := r.submit(r.ingestJob(all, worker.IngestOptions{Again: "x"}))
			r.turn(r.Worker)
			if r.receipt(id).HandleDigest != got.HandleDigest || r.toy.Prefilled() != before {
				t.Errorf("%d tokens were computed for what is stored", r.toy.Prefilled()-before)
			}
			second := r.resume(got.HandleDigest, queue.ResumeOrder{MaxTokens: 5})
			if want := r.plainText(all, 5); !equalIDs(second.IDs, want) {
				t.Errorf("the next turn says %v, want %v", second.IDs, want)
			}
			for _, name := range r.store.Names() {
				if kindOf(name) == "rolling" {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

// A stop string may end the text at any token, with drafts behind it that would have come true.
func TestExtendedStateEndsAtTheStopString(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	text := decode(r.plainText(prose(43), 16))
	for at := 1; at+2 <= len(text); at++ {
		got := r.resume(from.HandleDigest, queue.ResumeOrder{MaxTokens: 40, Drafts: 3, Keep: true, Stop: []string{text[at : at+2]}})
		id := r.submit(r.ingestJob(append(slices.Clone(prose(43)), got.IDs...), worker.IngestOptions{}))
		before := r.toy.Prefilled()
		if r.status(id).State != queue.Done {
			r.turn(r.Worker)
		}
		if want := r.receipt(id); got.HandleDigest != want.HandleDigest || r.toy.Prefilled() != before {
			t.Errorf("stop %q after %d tokens: handle %s, an ingest of the ids gives %s", text[at:at+2], len(got.IDs), got.Handle, want.Handle)
		}
	}
}

// A drafted stop id is not consumed either: the state ends before it.
func TestExtendedStateEndsBeforeTheStopID(t *testing.T) {
	r := newRig(t)
	from := r.ingest(prose(43))
	for _, stop := range r.plainText(prose(43), 30) {
		r.toy.Stops = []engine.Token{stop}
		got := r.resume(from.HandleDigest, queue.ResumeOrder{MaxTokens: 40, Drafts: 3, Keep: true})
		r.toy.Stops = nil
		if slices.Contains(got.IDs, stop) || got.FinishReason != worker.FinishStop {
			t.Errorf("with the stop id %d: %v (%s)", stop, got.IDs, got.FinishReason)
		}
		if len(got.IDs) == 0 {
			continue
		}
		apart := newRig(t)
		if want := apart.ingest(append(slices.Clone(prose(43)), got.IDs...)); got.HandleDigest != want.HandleDigest {
			t.Errorf("with the stop id %d after %d tokens: handle %s, an ingest of the ids gives %s", stop, len(got.IDs), got.Handle, want.Handle)
		}
	}
}

func TestResumeRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		order queue.ResumeOrder
		spoil func(r *rig, j *queue.Job)
		class string
		says  string
	}{
		"unknown handle":     {spoil: func(_ *rig, j *queue.Job) { j.Resume.Handle = cache.Sum(nil).String() }, class: "not-found", says: "lh1-"},
		"mistyped handle":    {spoil: func(_ *rig, j *queue.Job) { j.Resume.Handle = "lh1-xyz" }, class: "bad-input"},
		"expired handle":     {spoil: func(*rig, *queue.Job) { time.Sleep(2 * time.Hour) }, class: "expired", says: "expired"},
		"prompt too long":    {order: queue.ResumeOrder{Tokens: prose(20), Capacity: 60}, class: "bad-input", says: "capacity of 60"},
		"token too large":    {order: queue.ResumeOrder{Tokens: []int32{1, 9999}}, class: "bad-input", says: "9999"},
		"unknown role":       {order: queue.ResumeOrder{Chat: []queue.Message{{Role: "pope"}}}, class: "bad-input", says: "pope"},
		"temperature":        {order: queue.ResumeOrder{Sampling: queue.Sampling{Temperature: -1}}, class: "bad-input", says: "temperature"},
		"top-p":              {order: queue.ResumeOrder{Sampling: queue.Sampling{TopP: 1.5}}, class: "bad-input", says: "top-p"},
		"top-k":              {order: queue.ResumeOrder{Sampling: queue.Sampling{TopK: -1}}, class: "bad-input", says: "top-k"},
		"empty stop string":  {order: queue.ResumeOrder{Stop: []string{""}}, class: "bad-input", says: "stop string"},
		"other weights":      {spoil: otherModel, class: "incompatible", says: "weights"},
		"flipped byte":       {spoil: func(r *rig, _ *queue.Job) { r.harm(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }) }, class: "corrupt", says: "blobs/"},
		"truncated blob":     {spoil: func(r *rig, _ *queue.Job) { r.harm(func(b []byte) []byte { return b[:len(b)-1] }) }, class: "corrupt", says: "blobs/"},
		"missing blob":       {spoil: func(r *rig, _ *queue.Job) { r.harm(func([]byte) []byte { return nil }) }, class: "not-found", says: "blobs/"},
		"model that says no": {spoil: func(r *rig, _ *queue.Job) { r.toy.Lenient = true; r.Engine = absent{r.toy} }, class: "probe", says: "next token"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				id := r.submit(r.ingestJob(prose(43), worker.IngestOptions{TTL: time.Hour}))
				r.turn(r.Worker)
				j := r.resumeJob(r.receipt(id).HandleDigest, c.order)
				if c.spoil != nil {
					c.spoil(r, &j)
				}
				before := r.toy.Prefills()
				id = r.submit(j)
				r.turn(r.Worker)
				if dead := r.dead(id, c.class); !strings.Contains(dead.Reason, c.says) {
					t.Errorf("dead letter says %q, which does not name %q", dead.Reason, c.says)
				}
				if r.toy.Prefills() != before || r.toy.Open() != 0 || slices.Contains(r.types(id), queue.EventTokens) {
					t.Error("something was computed, told or left open")
				}
			})
		})
	}
}

// otherModel asks a worker of other weights, under the id of its own model.
func otherModel(r *rig, j *queue.Job) {
	r.toy = &enginetest.Toy{Seed: "other"}
	r.Engine = r.toy
	j.Model = r.identity().Model.String()
}

// harm changes one blob of rows; nil removes it.
func (r *rig) harm(change func([]byte) []byte) {
	r.Helper()
	for _, name := range r.store.Names() {
		if kindOf(name) != "blobs" {
			continue
		}
		b, _ := r.store.Bytes(name)
		if b = change(b); b != nil {
			r.store.SetBytes(name, b)
		} else if err := r.store.Delete(r.Context(), name); err != nil {
			r.Fatal(err)
		}
		return
	}
	r.Fatal("no blob is stored")
}

// absent is an engine that remembers nothing of a restored state.
type absent struct{ *enginetest.Toy }

func (a absent) NewSequence(n int) (engine.Sequence, error) {
	s, err := a.Toy.NewSequence(n)
	return absentSequence{s}, err
}

type absentSequence struct{ engine.Sequence }

func (s absentSequence) Restore(pos engine.Pos) (engine.Restoration, error) {
	r, err := s.Sequence.Restore(pos)
	return absentRestoration{r}, err
}

type absentRestoration struct{ engine.Restoration }

func (r absentRestoration) Commit(ctx context.Context) error {
	for _, region := range r.Regions() {
		if region.Kind == engine.Fixed {
			clear(region.Data)
		}
	}
	return r.Restoration.Commit(ctx)
}

// A second attempt tells the same text, its events under its own number.
func TestResumeIsRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		from := r.ingest(prose(43))
		want := r.resume(from.HandleDigest, queue.ResumeOrder{MaxTokens: 20, Sampling: queue.Sampling{Temperature: 2}})
		calls := 0
		r.toy.BeforeDecode = func(_ context.Context, _ int, _ []engine.Token) error {
			if calls++; calls == 6 {
				return engine.ErrDevice
			}
			return nil
		}
		got := r.resumeJob(from.HandleDigest, queue.ResumeOrder{MaxTokens: 20, Sampling: queue.Sampling{Temperature: 2}})
		id := r.submit(got)
		r.turn(r.Worker)
		r.turn(r.Worker)
		var second worker.Result
		r.result(id, &second)
		r.story(id, second)
		if second.Text != want.Text || second.Attempt != 2 || r.toy.Open() != 0 {
			t.Errorf("attempt %d says %q, want %q; %d sequences are open", second.Attempt, second.Text, want.Text, r.toy.Open())
		}
	})
}
