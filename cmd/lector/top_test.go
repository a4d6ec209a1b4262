package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"lector/engine"
	"lector/queue"
	"lector/queue/queuetest"
	"lector/worker"
)

// twoWorkers is a fleet as two machines tell it, one of them with words that steer a terminal.
func twoWorkers() fleet {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	depth := func(ingests, resumes int) []queue.Depth {
		return []queue.Depth{
			{Kind: queue.Ingest, Priority: "high", Waiting: 2}, {Kind: queue.Ingest, Priority: "normal", Waiting: ingests},
			{Kind: queue.Resume, Priority: "normal", Waiting: resumes},
		}
	}
	return fleet{at: at, workers: []queue.WorkerStatus{
		{
			Host: "reader-1", Process: 411, Model: "m", Name: "qwen4", Class: "metal-h1", Started: at.Add(-50 * time.Hour), Ended: 12, Failed: 1, Tokens: 1204000, Depth: depth(7, 1),
			Jobs: []queue.WorkerJob{
				{ID: "ingest-0123456789abcdef0123456789abcdef", Kind: queue.Ingest, Name: "a book with a very long title, in two volumes.txt", Attempt: 1, Since: at.Add(-95 * time.Second), Tokens: 40960, Total: 131072},
				{ID: "resume-1", Kind: queue.Resume, Attempt: 2, Since: at.Add(-1200 * time.Millisecond), Tokens: 3, Total: 256},
			},
		},
		{
			Host: "reader-2\x1b[2J", Process: 7, Model: "m", Name: "qwen4", Class: "metal-h1", Started: at.Add(-2 * time.Hour), Draining: true, Ended: 3, Depth: depth(8, 0),
			Recent: []queue.WorkerJob{{ID: "resume-0", Kind: queue.Resume, Attempt: 1, Tokens: 20, Total: 20, Class: "done", Seconds: 3.25}},
		},
	}}
}

func TestTopText(t *testing.T) {
	golden(t, "top.golden", twoWorkers().text(0))
	if got := (fleet{}).text(0); !strings.Contains(got, "no worker answers") {
		t.Error(got)
	}
	if got := twoWorkers().text(5); strings.Count(got, "\n") != 5 || !strings.HasSuffix(got, "...\n") {
		t.Errorf("cut after 5 lines: %q", got)
	}
}

// The screen follows what the workers say, keeps it when the queue is away, and ends with q.
func TestDashboard(t *testing.T) {
	var fault error
	d := tea.Model(dashboard{ask: func() (fleet, error) { return twoWorkers(), fault }, every: time.Second})
	if text := d.View().Content; !strings.Contains(text, "asking") {
		t.Error(text)
	}
	d, next := d.Update(d.Init()())
	if text := d.View().Content; !strings.Contains(text, "reader-1") || strings.ContainsRune(text, '\x1b') || next == nil {
		t.Errorf("%q", text)
	}
	fault = errors.New("cut off")
	_, ask := d.Update(again{})
	d, _ = d.Update(ask())
	if text := d.View().Content; !strings.Contains(text, "reader-1") || !strings.Contains(text, "cut off") {
		t.Error(text)
	}
	d, _ = d.Update(tea.WindowSizeMsg{Width: 80, Height: 6})
	if text := d.View().Content; strings.Count(text, "\n") > 8 {
		t.Errorf("%d lines on a screen of 6", strings.Count(text, "\n"))
	}
	_, quit := d.Update(tea.KeyPressMsg{Code: 'q', Text: "q"})
	if quit == nil {
		t.Fatal("q ends nothing")
	}
	if _, ok := quit().(tea.QuitMsg); !ok {
		t.Error("q does not quit")
	}
}

// The roll follows a job from its delivery to its end.
func TestRoll(t *testing.T) {
	q := queuetest.NewMemory(nil)
	r := &roll{}
	l := listening{q, r}
	job := queue.Job{
		Version: queue.JobVersion, ID: "a", Kind: queue.Ingest, Model: queuetest.Model, Priority: "normal", Submitted: time.Now(),
		Ingest: &queue.IngestOrder{Document: "d", Tokens: 100, Name: "book"},
	}
	if _, err := q.Submit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range []queue.Event{
		{Version: 1, Job: "a", Type: queue.EventProgress, Tokens: 40, Total: 100}, {Version: 1, Job: "other", Type: queue.EventProgress, Tokens: 99, Total: 100},
	} {
		if err := l.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	r.Computed(queue.Ingest, engine.ChunkStats{Tokens: 40})
	s := r.report(nil)
	if len(s.Jobs) != 1 || s.Jobs[0].Name != "book" || s.Jobs[0].Tokens != 40 || s.Jobs[0].Total != 100 || s.Tokens != 40 {
		t.Errorf("%+v", s)
	}
	for i := range recentJobs + 2 {
		r.Ended(worker.Ending{Job: "a", Fate: worker.Fate{Class: "corrupt"}, Final: queue.Failed, Took: time.Duration(i)})
		r.says.Jobs = append(r.says.Jobs, queue.WorkerJob{ID: "a"})
	}
	s = r.report(nil)
	if len(s.Jobs) != 1 || len(s.Recent) != recentJobs || s.Recent[0].Class != "corrupt" || s.Failed != recentJobs+2 || s.Ended != recentJobs+2 {
		t.Errorf("%+v", s)
	}
}

// A worker of one process is seen by top in another view of the same data folder.
func TestTopSeesAWorker(t *testing.T) {
	data := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	var errs lockedBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"worker", "--data", data, "--kinds", "resume"}, streams{in: strings.NewReader(""), out: &errs, err: &errs})
	}()
	top := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := run(t.Context(), append([]string{"top", "--data", data, "--wait", "300ms"}, args...), streams{in: strings.NewReader(""), out: &out, err: &out})
		return out.String(), code
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(errs.String(), "takes resume"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(errs.String())
		}
	}
	seen := func() bool {
		out, _ := top("--once")
		return strings.Contains(out, "1 worker, 0 jobs at work, nothing waits") && strings.Contains(out, "nano")
	}
	for deadline := time.Now().Add(time.Minute); !seen(); {
		if time.Now().After(deadline) {
			out, code := top("--once")
			t.Fatalf("exit code %d: %s", code, out)
		}
	}
	out, code := top("--json")
	var workers []queue.WorkerStatus
	if err := json.Unmarshal([]byte(out), &workers); err != nil || code != exitOK || len(workers) != 1 || workers[0].Name != "nano" || len(workers[0].Depth) == 0 {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("the worker exits with %d: %s", code, errs.String())
	}
	if out, code := top("--every", "1ms"); code != exitInput || !strings.Contains(out, "at least 100ms") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
