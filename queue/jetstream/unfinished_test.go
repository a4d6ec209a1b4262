package jetstream_test

import (
	"slices"
	"testing"

	"lector/queue"
)

// Jobs that wait and jobs that are worked on are unfinished; those that have ended are not.
func TestUnfinished(t *testing.T) {
	_, q := serve(t, config(t.TempDir()))
	ids := func() []string {
		t.Helper()
		all, err := q.Unfinished(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range all {
			out = append(out, s.Job.ID)
		}
		slices.Sort(out)
		return out
	}
	if got := ids(); len(got) != 0 {
		t.Errorf("an empty queue lists %v", got)
	}
	for _, id := range []string{"a", "b", "c"} {
		if _, err := q.Submit(t.Context(), job(id)); err != nil {
			t.Fatal(err)
		}
	}
	for id, state := range map[string]queue.State{"a": queue.Done, "b": queue.Running} {
		if err := q.SetStatus(t.Context(), queue.Status{Job: job(id), State: state}); err != nil {
			t.Fatal(err)
		}
	}
	if got := ids(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("unfinished: %v", got)
	}
}
