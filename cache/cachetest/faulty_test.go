package cachetest_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

var errOwn = errors.New("own failure")

func putText(t *testing.T, s cache.Store, name, body string) error {
	t.Helper()
	return s.Put(t.Context(), name, strings.NewReader(body), int64(len(body)), cache.IfAbsent)
}

func getText(t *testing.T, s cache.Store, name string) (string, error) {
	t.Helper()
	r, err := s.Get(t.Context(), name, 0, -1)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	return string(b), errors.Join(err, r.Close())
}

// What each action leaves in the store, and what the caller sees.
func TestFaultyPut(t *testing.T) {
	for _, c := range []struct {
		action cachetest.Action
		left   string
		there  bool
	}{{cachetest.ErrorBefore, "", false}, {cachetest.ErrorAfter, "12345678", true}, {cachetest.ShortWrite, "1234", true}} {
		store := cachetest.NewMemory()
		f := cachetest.NewFaulty(store, cachetest.Fault{Op: cachetest.Put, Pattern: "t/*/b", Nth: 2, Action: c.action, Err: errOwn})
		for _, name := range []string{"t/a/b", "t/other", "t/x/y/b"} {
			if err := putText(t, f, name, "12345678"); err != nil {
				t.Errorf("%s: %s: %v", c.action, name, err)
			}
		}
		if err := putText(t, f, "t/c/b", "12345678"); !errors.Is(err, errOwn) {
			t.Errorf("%s: %v", c.action, err)
		}
		if got, ok := store.Bytes("t/c/b"); ok != c.there || string(got) != c.left {
			t.Errorf("%s left %q (%v)", c.action, got, ok)
		}
		if len(f.Fired()) != 1 || !strings.Contains(f.Fired()[0].String(), string(c.action)) {
			t.Errorf("%s: fired %v", c.action, f.Fired())
		}
	}
}

func TestFaultyReads(t *testing.T) {
	store := cachetest.NewMemory()
	if err := putText(t, store, "t/a", "abcde"); err != nil {
		t.Fatal(err)
	}
	for action, want := range map[cachetest.Action]string{cachetest.FlipByte: "absde", cachetest.Truncate: "abcd"} {
		f := cachetest.NewFaulty(store, cachetest.Fault{Op: cachetest.Get, Nth: 1, Action: action})
		if got, err := getText(t, f, "t/a"); err != nil || got != want {
			t.Errorf("%s: %q, %v", action, got, err)
		}
		if got, err := getText(t, f, "t/a"); err != nil || got != "abcde" {
			t.Errorf("after %s: %q, %v", action, got, err)
		}
	}
	f := cachetest.NewFaulty(store, cachetest.Fault{Op: cachetest.Get, Action: cachetest.ErrorBefore},
		cachetest.Fault{Op: cachetest.Stat, Action: cachetest.ErrorBefore}, cachetest.Fault{Op: cachetest.List, Action: cachetest.ErrorBefore},
		cachetest.Fault{Op: cachetest.Delete, Action: cachetest.ErrorAfter})
	_, err := getText(t, f, "t/a")
	errs := []error{err, f.Delete(t.Context(), "t/a")}
	_, err = f.Stat(t.Context(), "t/a")
	errs = append(errs, err)
	for _, err := range f.List(t.Context(), "t/") {
		errs = append(errs, err)
	}
	for i, err := range errs {
		if !errors.Is(err, cachetest.ErrInjected) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if len(errs) != 4 || len(store.Names()) != 0 {
		t.Errorf("%d calls, store has %v", len(errs), store.Names())
	}
}

// A crash lets exactly its effects land, and serves nothing afterwards.
func TestCrash(t *testing.T) {
	for _, lost := range []bool{false, true} {
		store := cachetest.NewMemory()
		c := cachetest.NewCrash(store, 2)
		c.Lost = lost
		if err := putText(t, c, "t/a", "x"); err != nil {
			t.Fatal(err)
		}
		if err := putText(t, c, "t/a", "x"); !errors.Is(err, cache.ErrExists) || c.Effects() != 1 {
			t.Errorf("a taken name: %v, %d effects", err, c.Effects())
		}
		if err := putText(t, c, "t/b", "x"); lost != errors.Is(err, cachetest.ErrCrashed) {
			t.Errorf("last effect, answer lost %v: %v", lost, err)
		}
		before := store.Names()
		_, err := getText(t, c, "t/a")
		errs := []error{err, putText(t, c, "t/c", "x"), c.Delete(t.Context(), "t/a")}
		_, err = c.Stat(t.Context(), "t/a")
		errs = append(errs, err)
		for _, err := range c.List(t.Context(), "") {
			errs = append(errs, err)
		}
		for i, err := range errs {
			if !errors.Is(err, cachetest.ErrCrashed) {
				t.Errorf("call %d after the end: %v", i, err)
			}
		}
		if len(before) != 2 || len(store.Names()) != 2 || !c.Crashed() {
			t.Errorf("store had %v, has %v", before, store.Names())
		}
	}
}
