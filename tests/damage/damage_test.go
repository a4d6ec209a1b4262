package damage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/compress"
	"lector/cache/seal"
	"lector/cache/sign"
)

// form is a way in which objects lie in the store beneath.
type form struct {
	name             string
	sealed, compress bool
}

func forms() []form {
	return []form{{name: "plain"}, {name: "compressed", compress: true}, {name: "sealed", sealed: true}, {name: "sealed and compressed", sealed: true, compress: true}}
}

// open is the store of a form over the one beneath.
func (f form) open(ctx context.Context, inner cache.Store) (cache.Store, error) {
	store := inner
	if f.sealed {
		key, err := seal.NewKey(bytes.Repeat([]byte{3}, 32))
		if err != nil {
			return nil, err
		}
		if store, err = seal.Open(ctx, inner, cache.DefaultTenant, []seal.Key{key}); err != nil {
			return nil, err
		}
	}
	return compress.New(store, f.compress)
}

// world is a store in which there is one object or more of every kind, and what they are of.
type world struct {
	form   form
	inner  *cachetest.Memory
	space  *cache.Space
	one    *cachetest.Document // read whole
	two    *cachetest.Document // another, read whole
	half   *cachetest.Document // stopped after its first cell, whose state is rolling
	handle map[*cachetest.Document]cache.Digest
	whole  map[*cachetest.Document]cache.Manifest

	ids     map[*cachetest.Document]cache.Digest   // handles of token ids alone
	idsOnly map[*cachetest.Document]cache.Manifest // their manifests

	begun  []cache.Node // of half
	states map[[2]int32][]cache.Region
	key    sign.Secret
}

// tokens and grid make blobs large enough to be compressed: the high bytes of token ids are.
const (
	tokens = 600
	grid   = 256
)

func newWorld(t *testing.T, f form) *world {
	t.Helper()
	w := &world{form: f, inner: cachetest.NewMemory(), handle: map[*cachetest.Document]cache.Digest{}, whole: map[*cachetest.Document]cache.Manifest{}, states: map[[2]int32][]cache.Region{},
		ids: map[*cachetest.Document]cache.Digest{}, idsOnly: map[*cachetest.Document]cache.Manifest{}}
	store, err := f.open(t.Context(), w.inner)
	if err != nil {
		t.Fatal(err)
	}
	w.space = &cache.Space{Store: store}
	w.one = &cachetest.Document{Space: w.space, Tokens: cachetest.Count(100, tokens), Grid: grid, Job: "job-1"}
	w.two = &cachetest.Document{Space: w.space, Tokens: cachetest.Count(2000, tokens), Grid: grid, Job: "job-2"}
	w.half = &cachetest.Document{Space: w.space, Tokens: cachetest.Count(4000, tokens), Grid: grid, Job: "job-3"}
	if err := w.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, compressed, err := w.space.Store.(*compress.Store).Stored(t.Context(), blobOf(false)(w))
	if err != nil || compressed != f.compress {
		t.Fatalf("%s: the blob is compressed: %v, %v", f.name, compressed, err)
	}
	return w
}

// errorsName is what an error must say of an object: one of these.
type errorsName []string

func (n errorsName) in(err error) bool {
	return slices.ContainsFunc(n, func(s string) bool { return s != "" && strings.Contains(err.Error(), s) })
}

// sealedName is where an object lies beneath: it is what a deletion takes away.
func (w *world) beneath(t *testing.T, name string) string {
	t.Helper()
	before := map[string][]byte{}
	for _, n := range w.inner.Names() {
		before[n], _ = w.inner.Bytes(n)
	}
	if err := w.space.Store.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	left := w.inner.Names()
	var gone []string
	for n, b := range before {
		if !slices.Contains(left, n) {
			gone = append(gone, n)
			w.inner.SetBytes(n, b)
		}
	}
	if len(gone) != 1 {
		t.Fatalf("%s lies beneath as %v", name, gone)
	}
	return gone[0]
}

// A damage changes the bytes of an object; other and foreign are those of another object of the same kind, and of another kind.
type damage struct {
	name string
	do   func(b, other, foreign []byte) []byte
}

// damages lists what happens to bytes: a flipped bit in every part, cuts, more behind, parts in another order or twice, the
// bytes of another object of the kind, as a swap or the replay of an older write leaves them, and those of another kind.
func damages(size int) []damage {
	var out []damage
	step := max(size/96, 1)
	for i := 0; i < size; i += step {
		out = append(out, damage{fmt.Sprintf("flip at %d of %d", i, size), func(b, _, _ []byte) []byte { b[i] ^= 1 << (i % 8); return b }})
	}
	for _, n := range []int{0, 1, size / 3, size / 2, size - 1} {
		out = append(out, damage{fmt.Sprintf("cut to %d of %d", n, size), func(b, _, _ []byte) []byte { return b[:n] }})
	}
	return append(out,
		damage{"a byte behind", func(b, _, _ []byte) []byte { return append(b, '\n') }},
		damage{"twice", func(b, _, _ []byte) []byte { return append(b, b...) }},
		damage{"halves reordered", func(b, _, _ []byte) []byte { return append(bytes.Clone(b[len(b)/2:]), b[:len(b)/2]...) }},
		damage{"backwards", func(b, _, _ []byte) []byte { slices.Reverse(b); return b }},
		damage{"another of its kind", func(_, other, _ []byte) []byte { return other }},
		damage{"the first half of another", func(b, other, _ []byte) []byte {
			return append(bytes.Clone(other[:len(other)/2]), b[min(len(other)/2, len(b)):]...)
		}},
		damage{"another kind", func(_, _, foreign []byte) []byte { return foreign }},
		damage{"zeros", func(b, _, _ []byte) []byte { return make([]byte, len(b)) }},
	)
}

// Damage to the bytes of any kind of object, in any form, is an error of a kind that says which object, in one line; or,
// where the kind says so, it does no harm. It is never wrong state.
func TestDamage(t *testing.T) {
	for _, f := range forms() {
		w := newWorld(t, f)
		all := kinds()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			t.Run(f.name+"/"+name, func(t *testing.T) { w.harm(t, name, all[name]) })
		}
	}
}

// harm puts every damage on the object of a kind, and looks what reading it says.
func (w *world) harm(t *testing.T, name string, k kind) {
	object, other, foreign := w.beneath(t, k.object(w)), w.beneath(t, k.other(w)), w.beneath(t, foreignTo(name, w))
	whole, _ := w.inner.Bytes(object)
	otherBytes, _ := w.inner.Bytes(other)
	foreignBytes, _ := w.inner.Bytes(foreign)
	if err := k.read(t.Context(), w); err != nil {
		t.Fatalf("undamaged: %v", err)
	}
	for _, d := range damages(len(whole)) {
		b := d.do(bytes.Clone(whole), bytes.Clone(otherBytes), bytes.Clone(foreignBytes))
		if bytes.Equal(b, whole) {
			continue // such as a swap of two that are equal
		}
		w.inner.SetBytes(object, b)
		w.judge(t, k, d.name, k.read(t.Context(), w))
		w.inner.SetBytes(object, whole)
	}
	if err := w.inner.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if !k.mayGo {
		w.judge(t, k, "removed", k.read(t.Context(), w))
	}
	w.inner.SetBytes(object, whole)
	if err := k.read(t.Context(), w); err != nil {
		t.Errorf("put right again: %v", err)
	}
}

// judge holds what reading a damaged object said against what it must.
func (w *world) judge(t *testing.T, k kind, damage string, err error) {
	t.Helper()
	known := []error{cache.ErrCorrupt, cache.ErrIncompatible, cache.ErrNotFound, sign.ErrUnsigned}
	switch {
	case errors.Is(err, errWrong):
		t.Errorf("%s: %v", damage, err)
	case err == nil && !k.harmless:
		t.Errorf("%s: nobody noticed", damage)
	case err == nil:
	case !slices.ContainsFunc(known, func(kind error) bool { return errors.Is(err, kind) }):
		t.Errorf("%s: error of no kind: %v", damage, err)
	case !k.names(w).in(err) || strings.Contains(err.Error(), "\n"):
		t.Errorf("%s: %q names none of %q in one line", damage, err, k.names(w))
	}
}
