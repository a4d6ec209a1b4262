package cache_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lector/cache"
)

func sampleHandle() cache.Handle {
	return cache.Handle{Version: 1, Manifest: cache.Sum([]byte("manifest")), Model: identity().Model, Tokens: 20, Tenant: "default"}
}

func TestHandleRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := sampleHandle()
		h.Tokens = rapid.IntRange(1, 1<<31-1).Draw(t, "tokens")
		h.Tenant = rapid.StringMatching(`[a-zA-Z0-9_-]{1,20}`).Draw(t, "tenant")
		if rapid.Bool().Draw(t, "expires") {
			h.Expires = time.Unix(rapid.Int64Range(0, 1<<37).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanos")).UTC()
		}
		got, err := cache.DecodeHandle(h.Encode())
		if err != nil || got != h {
			t.Fatalf("%+v became %+v, %v", h, got, err)
		}
		elsewhere := h
		elsewhere.Expires = h.Expires.In(time.FixedZone("there", 5400))
		if string(elsewhere.Encode()) != string(h.Encode()) && !h.Expires.IsZero() {
			t.Error("the time zone changes the bytes")
		}
	})
}

func TestHandleExpires(t *testing.T) {
	h := sampleHandle()
	end := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	if err := h.Valid(end.AddDate(1000, 0, 0)); err != nil {
		t.Errorf("a handle that never expires: %v", err)
	}
	h.Expires = end
	if err := h.Valid(end.Add(-time.Nanosecond)); err != nil {
		t.Errorf("before its end: %v", err)
	}
	err := h.Valid(end)
	if want := "handle " + cache.HandleName(cache.Sum(h.Encode())) + " expired on 2026-11-30 12:00 UTC: read the document again with lector ingest"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if !errors.Is(err, cache.ErrExpired) {
		t.Errorf("%v is not ErrExpired", err)
	}
}

func TestHandleNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := cache.Sum(rapid.SliceOf(rapid.Byte()).Draw(t, "seed"))
		name := cache.HandleName(d)
		for _, s := range []string{name, strings.ToUpper(name), " " + name + "\n"} {
			if got, err := cache.ParseHandleName(s); err != nil || got != d {
				t.Fatalf("ParseHandleName(%q) = %s, %v", s, got, err)
			}
		}
		i := rapid.IntRange(4, len(name)-1).Draw(t, "at")
		letter := rapid.SampledFrom([]byte("abcdefghijklmnopqrstuvwxyz234567")).Draw(t, "letter")
		typo := name[:i] + string(letter) + name[i+1:]
		if _, err := cache.ParseHandleName(typo); (err == nil) != (typo == name) || err != nil && !errors.Is(err, cache.ErrHandle) {
			t.Fatalf("mistyped %s: %v", typo, err)
		}
	})
	name := cache.HandleName(cache.Digest{})
	for s, part := range map[string]string{
		"":                 "begin with lh1-",
		"foo":              "begin with lh1-",
		name[4:]:           "begin with lh1-",
		name[:20]:          "16 letters",
		name + "a":         "too long",
		name[:30] + "1aaa": `no '1'`,
		name[:30] + "é":    "no 'é'",
		"lh2-" + name[4:]:  "begin with lh1-",
		"lh1-":             "0 letters",
	} {
		_, err := cache.ParseHandleName(s)
		wantError(t, err, cache.ErrHandle, part)
	}
}

func TestFindHandle(t *testing.T) {
	store, d, _ := stored(t)
	var digest cache.Digest
	for h, err := range d.space.Handles(t.Context()) {
		if err != nil || h.Stored.IsZero() || h.Name() != cache.HandleName(h.Digest) {
			t.Fatal(h, err)
		}
		digest = h.Digest
	}
	name := cache.HandleName(digest)
	for n := 12; n <= len(name); n++ {
		got, h, err := d.space.FindHandle(t.Context(), name[:n])
		if err != nil || got != digest || h.Tokens != 20 {
			t.Fatalf("FindHandle(%s) = %s, %v", name[:n], got, err)
		}
	}
	_, _, err := d.space.FindHandle(t.Context(), name[:11])
	wantError(t, err, cache.ErrHandle, "too short", "8 letters")
	_, _, err = d.space.FindHandle(t.Context(), "nonsense")
	wantError(t, err, cache.ErrHandle)
	unknown := cache.HandleName(cache.Digest{1})
	for _, s := range []string{unknown, unknown[:20]} {
		_, _, err = d.space.FindHandle(t.Context(), s)
		wantError(t, err, cache.ErrNotFound, s, "not known", "lector snapshot ls")
	}
	twin := digest
	twin[10] ^= 1 // same beginning
	store.SetBytes("default/handles/"+twin.String(), []byte("{}"))
	store.SetBytes("default/handles/readme.txt", []byte("not a handle"))
	_, _, err = d.space.FindHandle(t.Context(), name[:14])
	wantError(t, err, cache.ErrHandle, "2 handles")
	if got, _, err := d.space.FindHandle(t.Context(), name[:24]); err != nil || got != digest {
		t.Errorf("FindHandle(%s) = %s, %v", name[:24], got, err)
	}
	var whole, damaged int
	for h, err := range d.space.Handles(t.Context()) {
		switch {
		case err == nil && h.Digest == digest:
			whole++
		case errors.Is(err, cache.ErrCorrupt) && h.Digest == twin:
			damaged++
		}
	}
	if whole != 1 || damaged != 1 {
		t.Errorf("the list has %d whole and %d damaged handles", whole, damaged)
	}
}

func TestPutHandle(t *testing.T) {
	store, d, _ := stored(t)
	manifests := slices.DeleteFunc(store.Names(), func(n string) bool { return !strings.Contains(n, "/manifests/") })
	good := sampleHandle()
	good.Manifest = digestOf(t, manifests[0])
	a, err := d.space.PutHandle(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := d.space.PutHandle(t.Context(), good); err != nil || a != b {
		t.Errorf("again: %s, %v; first %s", b, err, a)
	}
	if got, err := d.space.Handle(t.Context(), a); err != nil || got != good {
		t.Errorf("Handle = %+v, %v", got, err)
	}
	_, err = d.space.PutHandle(t.Context(), sampleHandle())
	wantError(t, err, cache.ErrNotFound, "manifest") // promise 1
	for name, edit := range map[string]func(h *cache.Handle){
		"version": func(h *cache.Handle) { h.Version = 0 },
		"tokens":  func(h *cache.Handle) { h.Tokens = 0 },
		"tenant":  func(h *cache.Handle) { h.Tenant = "other" },
		"path":    func(h *cache.Handle) { h.Tenant = "a/b" },
		"year":    func(h *cache.Handle) { h.Expires = time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		h := good
		edit(&h)
		if _, err := d.space.PutHandle(t.Context(), h); err == nil {
			t.Errorf("%s: it was stored", name)
		}
	}
	b, _ := store.Bytes("default/handles/" + a.String())
	store.SetBytes("other/handles/"+a.String(), b)
	_, err = (&cache.Space{Store: store, Tenant: "other"}).Handle(t.Context(), a)
	wantError(t, err, cache.ErrIncompatible, "default", "other")
}
