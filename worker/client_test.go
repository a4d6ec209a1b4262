package worker_test

import (
	"testing"
	"time"

	"lector/cache"
	"lector/queue"
	"lector/worker"
)

// Promise 5: the id of an ingest is a pure function of what decides its outcome.
func TestIngestJobID(t *testing.T) {
	id := cache.NewIdentity([]cache.Field{{Name: "weights", Value: "w"}}, "cpu-f32", 8, nil)
	other := cache.NewIdentity([]cache.Field{{Name: "weights", Value: "w"}}, "cpu-f32", 16, nil)
	document := cache.Sum([]byte("document"))
	base := worker.IngestOptions{Tokens: 3, Name: "a", TTL: time.Hour, Submitted: time.Unix(1, 0)}
	want := worker.NewIngest(id, document, base)
	if err := want.Validate(); err != nil {
		t.Fatal(err)
	}
	same := base
	same.Name, same.Submitted, same.Priority = "b", time.Unix(2, 0), "high"
	if got := worker.NewIngest(id, document, same); got.ID != want.ID {
		t.Errorf("name, time and priority change the id from %s to %s", want.ID, got.ID)
	}
	ids := map[string]string{want.ID: "base"}
	for name, job := range map[string]queue.Job{
		"grid":     worker.NewIngest(other, document, base),
		"document": worker.NewIngest(id, cache.Sum(nil), base),
		"ttl":      worker.NewIngest(id, document, worker.IngestOptions{TTL: time.Minute}),
		"capacity": worker.NewIngest(id, document, worker.IngestOptions{TTL: time.Hour, Capacity: 9}),
		"again":    worker.NewIngest(id, document, worker.IngestOptions{TTL: time.Hour, Again: "2"}),
	} {
		if was, taken := ids[job.ID]; taken {
			t.Errorf("%s has the id of %s", name, was)
		}
		ids[job.ID] = name
	}
}

func TestNewResume(t *testing.T) {
	id := cache.NewIdentity(nil, "cpu-f32", 8, nil)
	order := queue.ResumeOrder{Handle: cache.Sum(nil).String(), MaxTokens: 1}
	a, b := worker.NewResume(id, order, worker.ResumeOptions{}), worker.NewResume(id, order, worker.ResumeOptions{})
	if a.ID == b.ID || a.Resume.Sampling.Seed == b.Resume.Sampling.Seed {
		t.Errorf("two resumes are %s with seed %d and %s with seed %d", a.ID, a.Resume.Sampling.Seed, b.ID, b.Resume.Sampling.Seed)
	}
	if err := a.Validate(); err != nil {
		t.Error(err)
	}
	seed := uint64(3)
	if c := worker.NewResume(id, order, worker.ResumeOptions{Seed: &seed}); c.Resume.Sampling.Seed != 3 {
		t.Errorf("seed is %d, want 3", c.Resume.Sampling.Seed)
	}
}
