package cache_test

import (
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
)

// Reading a document again writes what is old once more, whatever its kind, and leaves what is young alone: a
// collector goes by age.
func TestOldObjectsAreWrittenAgain(t *testing.T) {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := cachetest.NewMemory()
	store.Now = func() time.Time { return clock }
	d := newDocument(store, count(100, 20))
	d.space.Now = store.Now
	d.keep = func(int) bool { return true }
	_, handle := d.mustRead(t)
	first := store.Names()
	stepAgain := func() {
		for i := range d.cuts {
			if _, _, err := d.space.PutStep(t.Context(), d.args(i)); err != nil {
				t.Fatal(err)
			}
		}
		if _, again := d.mustRead(t); again != handle {
			t.Fatal("the handle changed")
		}
	}
	for _, c := range []struct {
		after   time.Duration
		written bool
	}{{cache.RefreshAge - time.Hour, false}, {2 * time.Hour, true}} {
		clock = clock.Add(c.after)
		stepAgain()
		for _, name := range first {
			o, err := store.Stat(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if got := o.Time.Equal(clock); got != c.written {
				t.Errorf("after %v: %s was written again: %v, want %v", c.after, name, got, c.written)
			}
		}
	}
}
