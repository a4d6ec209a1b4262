package cachetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lector/cache"
)

// Run is what every cache.Store must do. open returns an empty store that the test may fill.
func Run(t *testing.T, open func(t *testing.T) cache.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, cache.Store)
	}{
		{"put and get", putAndGet},
		{"if absent", ifAbsent},
		{"replace", replace},
		{"sizes", sizes},
		{"body from its start", bodyFromStart},
		{"wrong size", wrongSize},
		{"ranges", ranges},
		{"absent", absent},
		{"names", names},
		{"list", list},
		{"list ends early", listEndsEarly},
		{"delete", deletes},
		{"cancelled", cancelled},
		{"one winner", oneWinner},
		{"put beside delete", putBesideDelete},
		{"time", storeTime},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// hexName is a digest, which a store may place by its beginning.
func hexName(folder string, i int) string {
	return folder + cache.Sum(fmt.Append(nil, i)).String()
}

func put(t *testing.T, s cache.Store, name, body string, how cache.PutMode) {
	t.Helper()
	if err := s.Put(t.Context(), name, strings.NewReader(body), int64(len(body)), how); err != nil {
		t.Fatalf("Put(%s): %v", name, err)
	}
}

func get(t *testing.T, s cache.Store, name string) string {
	t.Helper()
	return string(getRange(t, s, name, 0, -1))
}

func getRange(t *testing.T, s cache.Store, name string, off, n int64) []byte {
	t.Helper()
	r, err := s.Get(t.Context(), name, off, n)
	if err != nil {
		t.Fatalf("Get(%s, %d, %d): %v", name, off, n, err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return b
}

func listed(t *testing.T, s cache.Store, prefix string) []string {
	t.Helper()
	var out []string
	for o, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("List(%q): %v", prefix, err)
		}
		out = append(out, o.Name)
	}
	return out
}

func putAndGet(t *testing.T, s cache.Store) {
	for _, name := range []string{"a", "t/blobs/x", hexName("t/blobs/", 1), hexName("", 2), "A-b_c.d/0"} {
		put(t, s, name, "body of "+name, cache.IfAbsent)
		if got := get(t, s, name); got != "body of "+name {
			t.Errorf("Get(%s) = %q", name, got)
		}
		o, err := s.Stat(t.Context(), name)
		if err != nil || o.Name != name || o.Size != int64(len("body of "+name)) {
			t.Errorf("Stat(%s) = %+v, %v", name, o, err)
		}
	}
}

func ifAbsent(t *testing.T, s cache.Store) {
	name := hexName("t/nodes/", 1)
	put(t, s, name, "first", cache.IfAbsent)
	err := s.Put(t.Context(), name, strings.NewReader("second"), 6, cache.IfAbsent)
	if !errors.Is(err, cache.ErrExists) {
		t.Errorf("second put: %v, want ErrExists", err)
	}
	if got := get(t, s, name); got != "first" {
		t.Errorf("the standing object became %q", got)
	}
}

func replace(t *testing.T, s cache.Store) {
	name := hexName("t/blobs/", 1)
	put(t, s, name, "new where none was", cache.Replace)
	put(t, s, name, "short", cache.Replace)
	if got := get(t, s, name); got != "short" {
		t.Errorf("Get = %q", got)
	}
	if got := listed(t, s, ""); len(got) != 1 {
		t.Errorf("store lists %v", got)
	}
}

func sizes(t *testing.T, s cache.Store) {
	for _, n := range []int{0, 1, 4095, 4096, 3<<20 + 1} {
		name := fmt.Sprintf("t/size.%d", n)
		body := bytes.Repeat([]byte{byte(n), 0, 0xff}, n/3+1)[:n]
		put(t, s, name, string(body), cache.IfAbsent)
		if !bytes.Equal(getRange(t, s, name, 0, -1), body) {
			t.Errorf("%d bytes came back as others", n)
		}
	}
}

func bodyFromStart(t *testing.T, s cache.Store) {
	body := strings.NewReader("whole")
	if _, err := body.Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "t/a", body, 5, cache.IfAbsent); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "t/a"); got != "whole" {
		t.Errorf("Get = %q, want the body from its start", got)
	}
}

func wrongSize(t *testing.T, s cache.Store) {
	for _, size := range []int64{0, 4, 6, 1 << 20} {
		if err := s.Put(t.Context(), "t/a", strings.NewReader("whole"), size, cache.IfAbsent); err == nil {
			t.Errorf("a body of 5 bytes was taken as %d", size)
		}
	}
	if got := listed(t, s, ""); len(got) != 0 {
		t.Errorf("failed puts left %v", got)
	}
}

func ranges(t *testing.T, s cache.Store) {
	put(t, s, "t/a", "0123456789", cache.IfAbsent)
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, -1, "0123456789"}, {0, 10, "0123456789"}, {3, 4, "3456"}, {9, 1, "9"}, {4, -1, "456789"}, {10, 0, ""}, {10, -1, ""}, {5, 0, ""}} {
		if got := getRange(t, s, "t/a", c.off, c.n); string(got) != c.want {
			t.Errorf("Get(%d, %d) = %q, want %q", c.off, c.n, got, c.want)
		}
	}
	for _, c := range [][2]int64{{0, 11}, {11, 0}, {11, -1}, {9, 2}, {-1, 1}, {1, 1<<63 - 1}, {1 << 62, 1 << 62}} {
		r, err := s.Get(t.Context(), "t/a", c[0], c[1])
		if err == nil {
			_, err = io.ReadAll(r)
			r.Close()
		}
		if err == nil || errors.Is(err, cache.ErrNotFound) {
			t.Errorf("Get(%d, %d) of 10 bytes: %v, want an error about the range", c[0], c[1], err)
		}
	}
}

func absent(t *testing.T, s cache.Store) {
	put(t, s, "t/folder/a", "x", cache.IfAbsent)
	for _, name := range []string{"none", "t/none", "t/folder", hexName("t/blobs/", 9), "t/folder/a/below"} {
		if _, err := s.Stat(t.Context(), name); name != "t/folder" && !errors.Is(err, cache.ErrNotFound) || err == nil {
			t.Errorf("Stat(%s): %v, want ErrNotFound", name, err)
		}
		if r, err := s.Get(t.Context(), name, 0, -1); err == nil {
			r.Close()
			t.Errorf("Get(%s) gave an object", name)
		} else if name != "t/folder" && !errors.Is(err, cache.ErrNotFound) {
			t.Errorf("Get(%s): %v, want ErrNotFound", name, err)
		}
	}
}

func names(t *testing.T, s cache.Store) {
	bad := []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a b", "a\\b", "a\x00", "ä", "tmp~/a", "a:b", "a/" + strings.Repeat("x", 300)}
	for _, name := range bad {
		errs := map[string]error{"Put": s.Put(t.Context(), name, strings.NewReader("x"), 1, cache.IfAbsent), "Delete": s.Delete(t.Context(), name)}
		_, errs["Stat"] = s.Stat(t.Context(), name)
		_, errs["Get"] = s.Get(t.Context(), name, 0, -1)
		for call, err := range errs {
			if !errors.Is(err, cache.ErrName) {
				t.Errorf("%s(%q): %v, want ErrName", call, name, err)
			}
		}
	}
	for _, prefix := range []string{"/", "a//", "../", "a/../b", "ä", "a b"} {
		for _, err := range s.List(t.Context(), prefix) {
			if !errors.Is(err, cache.ErrName) {
				t.Errorf("List(%q): %v, want ErrName", prefix, err)
			}
		}
	}
}

func list(t *testing.T, s cache.Store) {
	all := []string{"a", "a-b", "b/c", "b.c", "b/c-d", "t/ab.c", "t/abc", "t/z/1", "t/a0/x", "t/a0.x", "u/" + strings.Repeat("ab", 32) + "/below"}
	for i := range 40 {
		all = append(all, hexName("t/", i), hexName("t/handles/", i))
	}
	for i, name := range all {
		put(t, s, name, strings.Repeat("x", i), cache.IfAbsent)
	}
	slices.Sort(all)
	one := hexName("t/handles/", 7)
	for _, prefix := range []string{"", "a", "b", "b/", "b/c", "t", "t/", "t/a", "t/ab", "t/a0", "t/a0/", "t/handles/", "t/handles/3", one[:12], one[:16], one, one + "0", "no", "no/where"} {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if got := listed(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("List(%q) = %v, want %v", prefix, got, want)
		}
	}
	for o, err := range s.List(t.Context(), "b") {
		if stat, serr := s.Stat(t.Context(), o.Name); err != nil || serr != nil || o.Size != stat.Size || !o.Time.Equal(stat.Time) {
			t.Errorf("List gave %+v (%v), Stat %+v (%v)", o, err, stat, serr)
		}
	}
}

func listEndsEarly(t *testing.T, s cache.Store) {
	for i := range 5 {
		put(t, s, hexName("t/", i), "x", cache.IfAbsent)
	}
	n := 0
	for range s.List(t.Context(), "t/") {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d objects", n)
	}
}

func deletes(t *testing.T, s cache.Store) {
	name, beside := hexName("t/rolling/job/", 1), hexName("t/rolling/job/", 2)
	put(t, s, name, "x", cache.IfAbsent)
	put(t, s, beside, "x", cache.IfAbsent)
	for range 2 { // removing what is not there is success
		if err := s.Delete(t.Context(), name); err != nil {
			t.Fatalf("Delete: %v", err)
		}
	}
	if _, err := s.Stat(t.Context(), name); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("Stat after Delete: %v", err)
	}
	if got := listed(t, s, ""); !slices.Equal(got, []string{beside}) {
		t.Errorf("store lists %v", got)
	}
	put(t, s, name, "again", cache.IfAbsent)
	if got := get(t, s, name); got != "again" {
		t.Errorf("Get = %q", got)
	}
}

func cancelled(t *testing.T, s cache.Store) {
	put(t, s, "t/a", "x", cache.IfAbsent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs := map[string]error{
		"Put":    s.Put(ctx, "t/b", strings.NewReader("x"), 1, cache.IfAbsent),
		"Delete": s.Delete(ctx, "t/a"),
	}
	_, errs["Stat"] = s.Stat(ctx, "t/a")
	_, errs["Get"] = s.Get(ctx, "t/a", 0, -1)
	for _, err := range s.List(ctx, "") {
		errs["List"] = err
	}
	for call, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the context's error", call, err)
		}
	}
	if got := listed(t, s, ""); !slices.Equal(got, []string{"t/a"}) {
		t.Errorf("store lists %v", got)
	}
}

// oneWinner puts one name from many goroutines: exactly one succeeds, and its object stands.
func oneWinner(t *testing.T, s cache.Store) {
	const writers = 8
	name := hexName("t/nodes/", 1)
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			errs[i] = s.Put(t.Context(), name, strings.NewReader(strings.Repeat(fmt.Sprint(i), 1000)), 1000, cache.IfAbsent)
		})
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Errorf("writers %d and %d both succeeded", winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, cache.ErrExists):
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if got := get(t, s, name); got != strings.Repeat(fmt.Sprint(winner), 1000) {
		t.Errorf("the object of writer %d reads %.20q…", winner, got)
	}
}

// putBesideDelete makes and removes objects of one folder at once: no call may fail because the folder is just
// being made or removed.
func putBesideDelete(t *testing.T, s cache.Store) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				name := fmt.Sprintf("t/rolling/job/%d.%d", i, j)
				if err := s.Put(t.Context(), name, strings.NewReader("x"), 1, cache.IfAbsent); err != nil {
					t.Errorf("Put(%s): %v", name, err)
				}
				if err := s.Delete(t.Context(), name); err != nil {
					t.Errorf("Delete(%s): %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	if got := listed(t, s, ""); len(got) != 0 {
		t.Errorf("store lists %v", got)
	}
}

// storeTime allows a store's clock to be far from ours, but an object must not be older than one before it.
func storeTime(t *testing.T, s cache.Store) {
	put(t, s, "t/a", "x", cache.IfAbsent)
	put(t, s, "t/b", "x", cache.IfAbsent)
	a, err := s.Stat(t.Context(), "t/a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Stat(t.Context(), "t/b")
	if err != nil {
		t.Fatal(err)
	}
	if a.Time.IsZero() || b.Time.Before(a.Time.Add(-time.Second)) {
		t.Errorf("times %v, then %v", a.Time, b.Time)
	}
}
