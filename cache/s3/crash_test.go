package s3_test

import (
	"errors"
	"fmt"
	"testing"

	"lector/cache"
	"lector/cache/archive"
	"lector/cache/cachetest"
	"lector/cache/gc"
	"lector/cache/s3/s3test"
)

// A reader of a document that dies after any effect on the bucket, its last answer lost or not, shows no handle that is
// not whole; another, on a connection of its own, comes to the same handle and leaves the same objects.
func TestCrashAfterEveryEffect(t *testing.T) {
	opt := options(t, s3test.Start(t))
	tokens := cachetest.Count(3, 20)
	whole := cachetest.NewMemory()
	want, _, err := (&cachetest.Document{Space: &cache.Space{Store: whole}, Tokens: tokens}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		for effects := range 100 {
			opt.Prefix = fmt.Sprintf("run.%v.%d", lost, effects)
			crash := cachetest.NewCrash(open(t, opt), effects)
			crash.Lost = lost
			_, _, err := (&cachetest.Document{Space: &cache.Space{Store: crash}, Tokens: tokens}).Read(t.Context())
			if err == nil && effects > 0 {
				break
			}
			if !errors.Is(err, cachetest.ErrCrashed) {
				t.Fatalf("after %d effects: %v", effects, err)
			}
			space := &cache.Space{Store: open(t, opt)}
			for h := range space.Handles(t.Context()) {
				if err := cachetest.Check(t.Context(), space, h.Digest, tokens); err != nil {
					t.Errorf("after %d effects a handle shows: %v", effects, err)
				}
			}
			got, _, err := (&cachetest.Document{Space: space, Tokens: tokens}).Read(t.Context())
			if err != nil || got != want {
				t.Fatalf("after %d effects: %v, %v, want %v", effects, got, err, want)
			}
			if err := cachetest.Check(t.Context(), space, got, tokens); err != nil {
				t.Error(err)
			}
			if _, err := gc.Run(t.Context(), space, gc.Options{Alone: true}); err != nil {
				t.Fatal(err)
			}
			var names []string
			for o, err := range space.Store.List(t.Context(), "default/") {
				if err != nil {
					t.Fatal(err)
				}
				if o.Name != "default/gc/clock" {
					names = append(names, o.Name)
				}
			}
			if fmt.Sprint(names) != fmt.Sprint(whole.Names()) {
				t.Errorf("after %d effects, left:\n%v\nwant:\n%v", effects, names, whole.Names())
			}
		}
	}
}

// A snapshot goes to another tenant of its bucket, and the collector finds nothing of either to take.
func TestCarryInABucket(t *testing.T) {
	opt := options(t, s3test.Start(t))
	from := &cache.Space{Store: open(t, opt)}
	tokens := cachetest.Count(3, 20)
	h, _, err := (&cachetest.Document{Space: from, Tokens: tokens}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	to := &cache.Space{Store: from.Store, Tenant: "acme"}
	c, err := archive.Copy(t.Context(), from, to, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*cache.Space{from, to} {
		if r, err := gc.Run(t.Context(), s, gc.Options{}); err != nil || r.Waiting.Objects != 0 {
			t.Errorf("collect: %+v, %v", r, err)
		}
	}
	if err := cachetest.Check(t.Context(), to, c.Handle, tokens); err != nil {
		t.Error(err)
	}
}
