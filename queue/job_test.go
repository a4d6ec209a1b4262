package queue_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"lector/queue"
	"pgregory.net/rapid"
)

func ingest() queue.Job {
	return queue.Job{
		Version: queue.JobVersion, ID: "a-1_B", Kind: queue.Ingest, Model: "0123abcd", Priority: "normal",
		Submitted: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Ingest:    &queue.IngestOrder{Document: "d", Tokens: 3, Name: "Ünï <b>", TTL: time.Hour},
	}
}

func resume() queue.Job {
	j := ingest()
	j.Kind, j.Ingest = queue.Resume, nil
	j.Resume = &queue.ResumeOrder{Handle: "h", MaxTokens: 1, Sampling: queue.Sampling{Temperature: 0.7, Seed: 1<<64 - 1}}
	return j
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		from func() queue.Job
		edit func(*queue.Job)
		want string // empty: valid
	}{
		{"ingest", ingest, func(*queue.Job) {}, ""},
		{"resume", resume, func(*queue.Job) {}, ""},
		{"later version", ingest, func(j *queue.Job) { j.Version = 2 }, "version 2"},
		{"no id", ingest, func(j *queue.Job) { j.ID = "" }, "job id"},
		{"id with a dot", ingest, func(j *queue.Job) { j.ID = "a.b" }, `"a.b"`},
		{"id with a letter beyond ASCII", ingest, func(j *queue.Job) { j.ID = "ä" }, `"ä"`},
		{"long id", ingest, func(j *queue.Job) { j.ID = strings.Repeat("x", 129) }, "job id"},
		{"longest id", ingest, func(j *queue.Job) { j.ID = strings.Repeat("x", 128) }, ""},
		{"model with a wildcard", ingest, func(j *queue.Job) { j.Model = "*" }, `model "*"`},
		{"no priority", ingest, func(j *queue.Job) { j.Priority = "" }, "priority"},
		{"unknown kind", ingest, func(j *queue.Job) { j.Kind = "train" }, `unknown kind "train"`},
		{"no order", ingest, func(j *queue.Job) { j.Ingest = nil }, "order"},
		{"both orders", ingest, func(j *queue.Job) { j.Resume = resume().Resume }, "order"},
		{"order of the other kind", resume, func(j *queue.Job) { j.Kind = queue.Ingest }, "order"},
		{"two prompts", resume, func(j *queue.Job) { j.Resume.Text, j.Resume.Tokens = "x", []int32{1} }, "2 prompts"},
		{"no tokens wanted", resume, func(j *queue.Job) { j.Resume.MaxTokens = 0 }, "0 tokens"},
		{"branches", resume, func(j *queue.Job) { j.Resume.Branches = queue.MaxBranches }, ""},
		{"negative branches", resume, func(j *queue.Job) { j.Resume.Branches = -1 }, "-1 branches"},
		{"too many branches", resume, func(j *queue.Job) { j.Resume.Branches = queue.MaxBranches + 1 }, "65 branches"},
		{"state of branches", resume, func(j *queue.Job) { j.Resume.Branches, j.Resume.Keep = 2, true }, "only that of one"},
		{"labels", ingest, func(j *queue.Job) { j.Labels = map[string]string{"book": "Opticks, 4th"} }, ""},
		{"label without a name", ingest, func(j *queue.Job) { j.Labels = map[string]string{"": "x"} }, `label ""`},
		{"long label", ingest, func(j *queue.Job) { j.Labels = map[string]string{"a": strings.Repeat("x", 257)} }, "256 bytes"},
		{"tenant", ingest, func(j *queue.Job) { j.Tenant = "a b" }, `tenant "a b"`},
		{"early handles", ingest, func(j *queue.Job) { j.Ingest.HandleAt = []int{1, 2} }, ""},
		{"early handles not ascending", ingest, func(j *queue.Job) { j.Ingest.HandleAt = []int{5, 5} }, "ascending"},
		{"early handle of nothing", ingest, func(j *queue.Job) { j.Ingest.HandleAt = []int{0} }, "from 1"},
		{"no state kept", ingest, func(j *queue.Job) { j.Version, j.Ingest.KeepState = 2, queue.KeepNone }, ""},
		{"no state kept, which an older lector would not heed", ingest, func(j *queue.Job) { j.Ingest.KeepState = queue.KeepNone }, "that is version 2"},
		{"all of it kept, which an older lector could do", ingest, func(j *queue.Job) { j.Version = 2 }, "that is version 1"},
		{"text whose state is not kept", resume, func(j *queue.Job) { j.Version, j.Resume.Keep, j.Resume.KeepState = 2, true, queue.KeepNone }, ""},
		{"four drafts", resume, func(j *queue.Job) { j.Resume.Drafts = 4 }, "4 drafts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := tt.from()
			tt.edit(&j)
			err := j.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("error is %v, wanted %q in it", err, tt.want)
			}
			if _, encErr := j.Encode(); (encErr == nil) != (err == nil) {
				t.Fatalf("Validate says %v, Encode %v", err, encErr)
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	j := resume()
	j.Resume.Text = strings.Repeat("x", queue.MaxJobBytes)
	if _, err := j.Encode(); err == nil || !strings.Contains(err.Error(), "shorten the prompt") {
		t.Fatalf("encoded a job beyond the limit: %v", err)
	}
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.DecodeJob(b); err == nil {
		t.Fatal("decoded a job beyond the limit")
	}
}

// Decode undoes Encode.
func TestRoundTrip(t *testing.T) {
	name := rapid.StringMatching(`[A-Za-z0-9_-]{1,128}`)
	rapid.Check(t, func(t *rapid.T) {
		j := resume()
		j.ID, j.Model, j.Priority = name.Draw(t, "id"), name.Draw(t, "model"), name.Draw(t, "priority")
		j.Resume.Text = rapid.String().Draw(t, "text")
		j.Resume.Stop = rapid.SliceOf(rapid.String()).Draw(t, "stop")
		j.Resume.Sampling.Temperature = rapid.Float64Range(0, 2).Draw(t, "temperature")
		j.Resume.Sampling.Seed = rapid.Uint64().Draw(t, "seed")
		if rapid.Bool().Draw(t, "ids") {
			j.Resume.Text, j.Resume.Tokens = "", rapid.SliceOfN(rapid.Int32(), 1, 50).Draw(t, "tokens")
		}
		b, err := j.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := queue.DecodeJob(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(j, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

// The wire form of version 1 as it was when it had no more fields, and as it is, and that of version 2: all are read for
// good. The files are written by hand once and never by a test.
func TestWireForm(t *testing.T) {
	for name, want := range map[string]queue.Job{
		"first": {
			Version: 1, ID: "ingest-0a", Kind: queue.Ingest, Model: "0123abcd", Priority: "normal", Submitted: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Ingest: &queue.IngestOrder{Document: "d0", Tokens: 7, Name: "book.txt", Capacity: 100, TTL: time.Hour},
		},
		"full": {
			Version: 1, ID: "ingest-0b", Kind: queue.Ingest, Model: "0123abcd", Priority: "high", Submitted: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Deadline: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), Labels: map[string]string{"book": "Opticks"}, Tenant: "physics",
			Ingest: &queue.IngestOrder{Document: "d0", Tokens: 7, Name: "book.txt", HandleAt: []int{512, 4096}},
		},
		"keep": {
			Version: 2, ID: "ingest-0c", Kind: queue.Ingest, Model: "0123abcd", Priority: "normal", Submitted: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Ingest: &queue.IngestOrder{Document: "d0", Tokens: 7, Name: "book.txt", KeepState: queue.KeepNone},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join("testdata", "job_"+name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := queue.DecodeJob(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
			again, err := got.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if have := strings.TrimSpace(string(b)); string(again) != have {
				t.Fatalf("encoded as %s, the file says %s", again, have)
			}
		})
	}
}

func FuzzDecodeJob(f *testing.F) {
	for _, j := range []queue.Job{ingest(), resume()} {
		b, err := j.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":1,"id":"a","kind":"ingest","model":"m","priority":"p"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := queue.DecodeJob(b)
		if err != nil {
			return
		}
		again, err := j.Encode()
		if err != nil {
			return // its escaped form is beyond the limit
		}
		if same, err := queue.DecodeJob(again); err != nil || cmp.Diff(j, same, cmpopts.EquateEmpty()) != "" {
			t.Fatalf("decoded %+v, then %+v: %v", j, same, err)
		}
	})
}

func TestFinal(t *testing.T) {
	for s, want := range map[queue.State]bool{
		queue.Queued: false, queue.Running: false, queue.Done: true, queue.Failed: true, queue.Cancelled: true, queue.Expired: true,
	} {
		if s.Final() != want {
			t.Errorf("%s is final: %v", s, s.Final())
		}
	}
}
