package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
	"lector/worker/client"
)

// tale is a text as tokens with what each of them makes certain.
type tale struct {
	ids    []int32
	pieces []string
}

func (s tale) text(n int) (out string) {
	for _, p := range s.pieces[:n] {
		out += p
	}
	return out
}

func drawTale(t *rapid.T) tale {
	n := rapid.IntRange(1, 12).Draw(t, "tokens")
	return tale{rapid.SliceOfN(rapid.Int32Range(0, 5), n, n).Draw(t, "ids"), rapid.SliceOfN(rapid.StringMatching(`[aé]{0,3}`), n, n).Draw(t, "pieces")}
}

// tell makes the events of one attempt, cut anyhow, up to a token.
func (s tale) tell(t *rapid.T, branch, attempt, upTo int) (out []queue.Event) {
	for from := 0; from < upTo; {
		to := rapid.IntRange(from+1, upTo).Draw(t, "cut")
		e := queue.Event{
			Type: queue.EventTokens, Job: "job", Branch: branch, Attempt: attempt, First: from, IDs: s.ids[from:to],
			Offset: len(s.text(from)), Text: s.text(to)[len(s.text(from)):],
		}
		if to == len(s.ids) {
			e.Finish = worker.FinishStop
		}
		out = append(out, e)
		from = to
	}
	return out
}

// scene is a job's story and what the texts are.
type scene struct {
	texts  []tale
	events []queue.Event
}

func drawScene(t *rapid.T) scene {
	var s scene
	for range rapid.IntRange(1, 3).Draw(t, "branches") {
		s.texts = append(s.texts, drawTale(t))
	}
	attempts := rapid.IntRange(1, 3).Draw(t, "attempts")
	for attempt := 1; attempt <= attempts; attempt++ {
		for branch, text := range s.texts {
			upTo := len(text.ids)
			if attempt < attempts {
				upTo = rapid.IntRange(0, len(text.ids)).Draw(t, "dies after")
			}
			s.events = append(s.events, text.tell(t, branch, attempt, upTo)...)
			if upTo < len(text.ids) {
				break
			}
		}
	}
	return s
}

// client is one of a job with the scene's events, without the first so many that have become too old.
func (s scene) client(t interface {
	Context() context.Context
	Fatal(...any)
}, forgotten int) *client.Client {
	q := queuetest.NewMemory(nil)
	st, err := q.Submit(t.Context(), queue.Job{
		Version: queue.JobVersion, ID: "job", Kind: queue.Resume, Model: "m", Priority: "normal", Resume: &queue.ResumeOrder{Handle: "h", MaxTokens: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := worker.Result{Text: s.texts[0].text(len(s.texts[0].ids)), IDs: s.texts[0].ids, FinishReason: worker.FinishStop}
	for i, text := range s.texts {
		r.Branches = append(r.Branches, worker.Branch{Index: i, Text: text.text(len(text.ids)), IDs: text.ids, FinishReason: worker.FinishStop})
	}
	st.State = queue.Done
	if st.Result, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	if err := q.SetStatus(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	for _, e := range append(s.events[forgotten:], queue.Event{Type: queue.EventDone, Job: "job"}) {
		if err := q.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	return &client.Client{Queue: q, Space: &cache.Space{Store: cachetest.NewMemory()}, Poll: time.Minute}
}

// Whatever attempts tell, and whatever was forgotten of it: from any place on, every token and every byte comes once
// and in order, and each text ends once.
func TestStreamGivesEachTokenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		c := s.client(t, rapid.IntRange(0, len(s.events)).Draw(t, "forgotten"))
		place := client.Place{}
		ids, texts, ends := make([][]int32, len(s.texts)), make([]string, len(s.texts)), make([]int, len(s.texts))
		for round := 0; ; round++ {
			stopAfter := rapid.IntRange(1, 6).Draw(t, "pieces until it attaches anew")
			var kept client.Place // as another process gets it
			b, err := json.Marshal(place)
			if err == nil {
				err = json.Unmarshal(b, &kept)
			}
			if err != nil {
				t.Fatal(err)
			}
			pieces := 0
			for p, err := range c.Stream(t.Context(), "job", kept) {
				if err != nil {
					t.Fatal(err)
				}
				if p.First != len(ids[p.Branch]) || p.Offset != len(texts[p.Branch]) {
					t.Fatalf("branch %d goes on at token %d, byte %d after %d and %d", p.Branch, p.First, p.Offset, len(ids[p.Branch]), len(texts[p.Branch]))
				}
				ids[p.Branch], texts[p.Branch] = append(ids[p.Branch], p.IDs...), texts[p.Branch]+p.Text
				if p.Finish != "" {
					ends[p.Branch]++
				}
				place.Add(p)
				if pieces++; pieces == stopAfter {
					break
				}
			}
			if pieces < stopAfter {
				break
			}
			if round > 100 {
				t.Fatal("the stream has no end")
			}
		}
		for i, text := range s.texts {
			if !slices.Equal(ids[i], text.ids) || texts[i] != text.text(len(text.ids)) || ends[i] != 1 {
				t.Fatalf("branch %d came as %v %q with %d ends, it is %v %q", i, ids[i], texts[i], ends[i], text.ids, text.text(len(text.ids)))
			}
		}
	})
}

// An attempt that says something else is not silently joined to what was given.
func TestStreamRetold(t *testing.T) {
	s := scene{texts: []tale{{ids: []int32{1, 2, 4}, pieces: []string{"a", "b", "d"}}}}
	s.events = []queue.Event{
		{Type: queue.EventTokens, Job: "job", Attempt: 1, IDs: []int32{1, 2, 3}, Text: "abc"},
		{Type: queue.EventTokens, Job: "job", Attempt: 2, IDs: []int32{1}, Text: "a"},
		{Type: queue.EventTokens, Job: "job", Attempt: 2, First: 1, Offset: 1, IDs: []int32{2, 4}, Text: "bd", Finish: worker.FinishStop},
	}
	got, err := client.Texts(s.client(t, 0).Stream(t.Context(), "job", nil))
	if !errors.Is(err, client.ErrRetold) || len(got) != 1 || got[0] != "abc" {
		t.Errorf("given %q: %v", got, err)
	}
	// Known from the result alone, when the events of the second attempt are lost.
	s.events = s.events[:1]
	if _, err := client.Texts(s.client(t, 0).Stream(t.Context(), "job", nil)); !errors.Is(err, client.ErrRetold) {
		t.Errorf("with the result alone: %v", err)
	}
}
