package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"lector/queue"
)

// found is an entry of a watch, with how many are behind it.
type found struct {
	jetstream.KeyValueEntry
	key  string
	left uint64
	gone bool
}

func (f found) Key() string   { return f.key }
func (f found) Delta() uint64 { return f.left }
func (f found) Operation() jetstream.KeyValueOp {
	if f.gone {
		return jetstream.KeyValueDelete
	}
	return jetstream.KeyValuePut
}

// A watch that began with a and b tells its end after as many entries; a was written again meanwhile, after c was created.
func TestListingMissesNoRecordThatIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		come []jetstream.KeyValueEntry
		want string
	}{
		"nothing":               {[]jetstream.KeyValueEntry{nil}, "[]"},
		"as it was":             {[]jetstream.KeyValueEntry{found{key: "a", left: 1}, found{key: "b"}, nil}, "[a b]"},
		"one written again":     {[]jetstream.KeyValueEntry{found{key: "b", left: 2}, found{key: "c", left: 1}, nil, found{key: "a"}}, "[b c a]"},
		"one told twice":        {[]jetstream.KeyValueEntry{found{key: "a", left: 2}, found{key: "b", left: 1}, nil, found{key: "a"}}, "[a b]"},
		"one deleted":           {[]jetstream.KeyValueEntry{found{key: "a", left: 1}, found{key: "b", gone: true}, nil}, "[a]"},
		"one deleted meanwhile": {[]jetstream.KeyValueEntry{found{key: "b", left: 2}, found{key: "c", left: 1}, nil, found{key: "a", gone: true}}, "[b c]"},
	} {
		updates := make(chan jetstream.KeyValueEntry, len(c.come))
		for _, e := range c.come {
			updates <- e
		}
		keys := []string{}
		err := eachEntry(t.Context(), updates, time.Minute, func(e jetstream.KeyValueEntry) error {
			keys = append(keys, e.Key())
			return nil
		})
		if err != nil || fmt.Sprint(keys) != c.want || len(updates) > 0 {
			t.Errorf("%s: %v, %v, not %s", name, keys, err, c.want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := eachEntry(ended, nil, time.Minute, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("in an ended context: %v", err)
	}
}

// The count never loses a submit whose record may not be there yet, and lets go of those whose record tells.
func TestOpenCountOfRecords(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	o := &openCount{Counted: now}
	enter := func(id string, again bool) int {
		return o.enter(entry{job: queue.Job{ID: id}, again: again, most: 9}, now)
	}
	for i, id := range []string{"waits", "ended", "failed", "unseen"} {
		if n := enter(id, false); n != i {
			t.Errorf("beside %s there are %d", id, n)
		}
	}
	if n := enter("failed", true); n != 3 || o.N != 4 {
		t.Errorf("a job that runs again is counted twice: %d others of %d", n, o.N)
	}
	o.N = 0
	for id, state := range map[string]queue.State{"waits": queue.Queued, "ended": queue.Done, "failed": queue.Failed, "older": queue.Running} {
		o.record(queue.Status{Job: queue.Job{ID: id}, State: state})
	}
	left := []string{}
	for id := range o.Recent {
		left = append(left, id)
	}
	if slices.Sort(left); o.N != 2 || !slices.Equal(left, []string{"failed", "unseen"}) {
		t.Errorf("%d open, and not told of by records: %v", o.N, left)
	}
}

// Records are counted when the quota was set since, once more when everyone heeds it, and from time to time.
func TestOpenCountStale(t *testing.T) {
	set := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(after time.Duration) *openCount { return &openCount{Counted: set.Add(after)} }
	full := at(settleAge)
	full.Recent = map[string]recent{}
	for i := range maxRecent {
		full.Recent[fmt.Sprint(i)] = recent{}
	}
	for name, c := range map[string]struct {
		o    *openCount
		now  time.Duration
		want bool
	}{
		"never counted":           {nil, settleAge, true},
		"before it was set":       {at(-1), 0, true},
		"since, not settled":      {at(1), 2, false},
		"since, settled now":      {at(1), settleAge, true},
		"since it settled":        {at(settleAge), settleAge + 1, false},
		"long ago":                {at(settleAge), settleAge + countAge + 1, true},
		"many submits since then": {full, settleAge + 1, true},
	} {
		if got := c.o.stale(set.Add(c.now), set); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
