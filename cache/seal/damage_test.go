package seal_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/seal"
)

// object is the one sealed object beneath.
func object(t testing.TB, inner *cachetest.Memory) string {
	t.Helper()
	i := slices.IndexFunc(inner.Names(), func(n string) bool { return strings.Contains(n, "/sealed/") })
	if i < 0 {
		t.Fatal("nothing is sealed")
	}
	return inner.Names()[i]
}

// Whatever happens to sealed bytes, they do not open: flips in every part, cuts at every kind of place, segments in
// another order, twice or left out, and the bytes of another object or another key.
func TestDamagedObject(t *testing.T) {
	const header, sealed = 16 + 8 + 32, 64<<10 + 16
	body := pattern(2*(64<<10) + 100)
	segment := func(b []byte, i int) []byte { return b[header+i*sealed : min(header+(i+1)*sealed, len(b))] }
	flip := func(at int) func(b []byte) []byte {
		return func(b []byte) []byte { b[(at+len(b))%len(b)] ^= 1; return b }
	}
	for what, damage := range map[string]func(b []byte) []byte{
		"flip in the magic":     flip(3),
		"flip in the key id":    flip(17),
		"flip in the salt":      flip(30),
		"flip in a segment":     flip(header + 100),
		"flip in a tag":         flip(header + sealed - 1),
		"flip in the last tag":  flip(-1),
		"cut to nothing":        func(b []byte) []byte { return nil },
		"cut in the header":     func(b []byte) []byte { return b[:header-1] },
		"cut behind the header": func(b []byte) []byte { return b[:header] },
		"cut at a segment":      func(b []byte) []byte { return b[:header+sealed] },
		"cut in a segment":      func(b []byte) []byte { return b[:header+sealed+9] },
		"cut by one":            func(b []byte) []byte { return b[:len(b)-1] },
		"longer":                func(b []byte) []byte { return append(b, 0) },
		"longer by a segment":   func(b []byte) []byte { return append(b, segment(b, 2)...) },
		"reordered":             func(b []byte) []byte { return slices.Concat(b[:header], segment(b, 1), segment(b, 0), segment(b, 2)) },
		"a segment left out":    func(b []byte) []byte { return slices.Concat(b[:header], segment(b, 1), segment(b, 2)) },
		"a segment twice": func(b []byte) []byte {
			return slices.Concat(b[:header], segment(b, 0), segment(b, 0), segment(b, 1), segment(b, 2))
		},
		"another form": func(b []byte) []byte { return bytes.Replace(b, []byte("sealed 1"), []byte("sealed 2"), 1) },
		"plaintext":    func([]byte) []byte { return body },
	} {
		inner := cachetest.NewMemory()
		s := open(t, inner, key(t, 1))
		put(t, s, "default/blobs/x", body, cache.IfAbsent)
		name := object(t, inner)
		b, _ := inner.Bytes(name)
		inner.SetBytes(name, damage(bytes.Clone(b)))
		got, err := get(t, s, "default/blobs/x", 0, -1)
		if !errors.Is(err, cache.ErrCorrupt) && !(what == "another form" && errors.Is(err, cache.ErrIncompatible)) || !strings.Contains(err.Error(), "default/blobs/x") {
			t.Errorf("%s: %v", what, err)
		}
		if len(got) > len(body) || !bytes.Equal(got, body[:len(got)]) {
			t.Errorf("%s: other bytes came through before the error", what)
		}
		if o, err := s.Stat(t.Context(), "default/blobs/x"); err != nil || len(damage(bytes.Clone(b))) != len(b) && o.Size == int64(len(body)) {
			t.Errorf("%s: Stat says %d, %v", what, o.Size, err)
		}
	}
}

// The bytes of one object under the name of another do not open, nor those of another key, nor a name moved elsewhere.
func TestSwappedObjects(t *testing.T) {
	inner := cachetest.NewMemory()
	s := open(t, inner, key(t, 1))
	names := map[string]string{} // plain to sealed
	for _, name := range []string{"default/blobs/a", "default/blobs/b", "default/nodes/a", "other/blobs/a"} {
		before := inner.Names()
		put(t, s, name, []byte("body of "+name), cache.IfAbsent)
		for _, n := range inner.Names() {
			if !slices.Contains(before, n) && strings.Contains(n, "/sealed/") {
				names[name] = n
			}
		}
	}
	first, _ := inner.Bytes(names["default/blobs/a"])
	for _, name := range []string{"default/blobs/b", "default/nodes/a", "other/blobs/a"} {
		whole, _ := inner.Bytes(names[name])
		inner.SetBytes(names[name], first)
		if _, err := get(t, s, name, 0, -1); !errors.Is(err, cache.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s with the bytes of another: %v", name, err)
		}
		inner.SetBytes(names[name], whole)
	}
	last := names["default/blobs/a"][strings.LastIndex(names["default/blobs/a"], "/")+1:]
	inner.SetBytes("default/sealed/"+key(t, 1).ID()+"/nodes/"+last, first)
	listed := 0
	for o, err := range s.List(t.Context(), "default/") {
		if listed++; err != nil || names[o.Name] == "" {
			t.Errorf("listed %+v, %v", o, err)
		}
	}
	if listed != 3 {
		t.Errorf("%d objects are listed, want 3", listed)
	}
}

// Damage to a key's mark is said when the store is opened.
func TestDamagedMark(t *testing.T) {
	inner := cachetest.NewMemory()
	put(t, open(t, inner, key(t, 1)), "default/blobs/x", []byte("x"), cache.IfAbsent)
	mark := "default/seals/" + key(t, 1).ID()
	b, ok := inner.Bytes(mark)
	if !ok {
		t.Fatalf("no mark among %v", inner.Names())
	}
	b[len(b)-1] ^= 1
	inner.SetBytes(mark, b)
	_, err := seal.Open(t.Context(), inner, "default", []seal.Key{key(t, 1)})
	if !errors.Is(err, cache.ErrCorrupt) || !strings.Contains(err.Error(), mark) {
		t.Errorf("Open: %v", err)
	}
}

// A name that leaves no room for its sealed form is refused before anything is stored.
func TestLongNames(t *testing.T) {
	inner := cachetest.NewMemory()
	s := open(t, inner, key(t, 1))
	for n, want := range map[int]error{128: nil, 135: nil, 136: cache.ErrName, 255: cache.ErrName} {
		err := s.Put(t.Context(), "default/tags/"+strings.Repeat("x", n), strings.NewReader("x"), 1, cache.IfAbsent)
		if !errors.Is(err, want) {
			t.Errorf("an element of %d: %v", n, err)
		}
	}
}
