package cache_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lector/cache"
	"lector/cache/cachetest"
)

// putTokens stores ids without a state and makes a handle for them.
func putTokens(ctx context.Context, store cache.Store, tokens []int32) (cache.Manifest, cache.Digest, error) {
	space := &cache.Space{Store: store}
	m, digest, err := space.PutTokens(ctx, identity(), tokens)
	if err != nil {
		return m, digest, err
	}
	h := cache.Handle{Version: cache.HandleVersion, Manifest: digest, Model: identity().Model, Tokens: len(tokens), Tenant: cache.DefaultTenant}
	digest, err = space.PutHandle(ctx, h)
	return m, digest, err
}

// Law: ids that are stored come back, under the keys that a document of them has, in four bytes each; and what documents
// share is stored once.
func TestTokensAlone(t *testing.T) {
	ids := rapid.SliceOfN(rapid.Int32Range(0, 1<<20), 1, 60)
	rapid.Check(t, func(rt *rapid.T) {
		tokens, more := ids.Draw(rt, "tokens"), ids.Draw(rt, "more")
		store := cachetest.NewMemory()
		space := &cache.Space{Store: store}
		m, _, err := putTokens(rt.Context(), store, tokens)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := space.Tokens(rt.Context(), m)
		if err != nil || !slices.Equal(got, tokens) || !m.TokensOnly() || m.Bytes != 4*int64(len(tokens)) || len(m.State) != 0 {
			rt.Fatalf("%v came back as %v of %+v, %v", tokens, got, m, err)
		}
		keys := cache.Keys(identity().Producer, tokens, cache.Boundaries(len(tokens), identity().Grid))
		for i, c := range m.Chunks {
			if c.Key != keys[i] {
				rt.Fatalf("chunk %d has the key %s, a document %s", i, c.Key, keys[i])
			}
		}
		if r, err := space.Verify(rt.Context(), m); err != nil || !r.KeysChecked || r.Bytes != m.Bytes {
			rt.Fatalf("verify: %+v, %v", r, err)
		}
		before := blobs(store)
		if _, _, err := putTokens(rt.Context(), store, append(slices.Clone(tokens), more...)); err != nil {
			rt.Fatal(err)
		}
		whole := len(tokens) / 8 // cells of both
		if n := blobs(store) - before; n > (len(tokens)+len(more)+7)/8-whole {
			rt.Fatalf("%d blobs were added to %d for %d more tokens", n, before, len(more))
		}
	})
}

func blobs(s *cachetest.Memory) (n int) {
	for _, name := range s.Names() {
		if strings.Contains(name, "/blobs/") {
			n++
		}
	}
	return n
}

// A process that dies between any two effects leaves no handle that does not hold, and the next one finishes with the same
// objects.
func TestTokensCrashBetweenAnyTwoEffects(t *testing.T) {
	whole := cachetest.NewMemory()
	counter := cachetest.NewCrash(whole, -1)
	_, want, err := putTokens(t.Context(), counter, count(100, 28))
	if err != nil || counter.Effects() != 4+2 {
		t.Fatalf("%d effects, %v", counter.Effects(), err)
	}
	for after := range counter.Effects() {
		for _, lost := range []bool{false, true} {
			store := cachetest.NewMemory()
			crash := cachetest.NewCrash(store, after)
			crash.Lost = lost
			if _, _, err := putTokens(t.Context(), crash, count(100, 28)); !errors.Is(err, cachetest.ErrCrashed) {
				t.Fatalf("crash after %d effects: %v", after, err)
			}
			holds(t, store)
			_, got, err := putTokens(t.Context(), store, count(100, 28))
			if err != nil || got != want || !slices.Equal(store.Names(), whole.Names()) {
				t.Errorf("after a crash at %d: %s of %v, %v", after, got, store.Names(), err)
			}
		}
	}
}

// holds verifies every manifest that shows.
func holds(t *testing.T, store *cachetest.Memory) {
	t.Helper()
	space := &cache.Space{Store: store}
	for _, name := range store.Names() {
		if !strings.Contains(name, "/manifests/") {
			continue
		}
		m, err := space.Manifest(t.Context(), digestOf(t, name))
		if err == nil {
			_, err = space.Verify(t.Context(), m)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ids without a state are never taken for one, and a state never for them.
func TestTokensAreNoState(t *testing.T) {
	store, d, full := stored(t)
	m, _, err := putTokens(t.Context(), store, d.tokens)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.space.Restore(t.Context(), m, "", nil, blank(d.layout, 20))
	wantError(t, err, cache.ErrIncompatible, "layers.0.k")
	if full.TokensOnly() {
		t.Error("a state is taken for ids alone")
	}
	alone := cache.Layout{specs()[0]}
	args := d.args(0)
	args.Regions = state(alone, d.tokens[:8])
	before := store.Names()
	if _, _, err := d.space.PutStep(t.Context(), args); err == nil || !slices.Equal(store.Names(), before) {
		t.Errorf("a node of ids alone: %v", err)
	}
	if n, _, err := d.space.Deepest(t.Context(), "", d.keys()); n != 3 || err != nil {
		t.Errorf("the state beside is found to %d cells, %v", n, err)
	}
}

// A manifest of ids alone has one form.
func TestInconsistentTokensManifests(t *testing.T) {
	for name, edit := range map[string]func(m *cache.Manifest){
		"a probe":         func(m *cache.Manifest) { m.Probe.Next = 3 },
		"a draft":         func(m *cache.Manifest) { m.Probe.Draft = 0 },
		"top logits":      func(m *cache.Manifest) { m.Probe.Top = []cache.TopLogit{{ID: 1, Logit: 2}} },
		"a state":         func(m *cache.Manifest) { m.State = []cache.Blob{{Size: 4}} },
		"another blob":    func(m *cache.Manifest) { m.Chunks[0].Rows[0].Digest[0] ^= 1 },
		"other ids":       func(m *cache.Manifest) { m.Chunks[0].Tokens[0] ^= 1 },
		"another grid":    func(m *cache.Manifest) { m.Identity = cache.NewIdentity(fields(), "cpu-f32", 4, nil) },
		"a loss":          func(m *cache.Manifest) { m.Losses = []cache.Loss{{Region: "layers.0.k", L2: 0.1}} },
		"a token more":    func(m *cache.Manifest) { m.Tokens++ },
		"too many tokens": func(m *cache.Manifest) { m.Tokens, m.Bytes = 1<<30, 4<<30 },
		"a cut blob":      func(m *cache.Manifest) { m.Chunks[0].Rows[0].Size-- },
	} {
		m, err := cache.NewTokensManifest(identity(), count(0, 20))
		if err != nil {
			t.Fatal(err)
		}
		edit(&m)
		if b, err := m.Encode(); err == nil {
			if _, err := cache.DecodeManifest(b); !errors.Is(err, cache.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, tokens := range [][]int32{nil, {1, -1}} {
		if _, err := cache.NewTokensManifest(identity(), tokens); err == nil {
			t.Errorf("%v was described", tokens)
		}
	}
}

// Damaged ids are an error that names the blob, and never other ids.
func TestDamagedTokens(t *testing.T) {
	store := cachetest.NewMemory()
	m, _, err := putTokens(t.Context(), store, count(100, 20))
	if err != nil {
		t.Fatal(err)
	}
	space := &cache.Space{Store: store}
	name := "default/blobs/" + m.Chunks[1].Rows[0].Digest.String()
	whole, _ := store.Bytes(name)
	for i := range whole {
		b := slices.Clone(whole)
		b[i] ^= 1
		store.SetBytes(name, b)
		_, err := space.Tokens(t.Context(), m)
		wantError(t, err, cache.ErrCorrupt, name, "tokens [8, 16)")
	}
	store.SetBytes(name, whole[:31])
	_, err = space.Tokens(t.Context(), m)
	wantError(t, err, cache.ErrCorrupt, name)
	if err := store.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	_, err = space.Tokens(t.Context(), m)
	wantError(t, err, cache.ErrNotFound, name)
	wantError(t, space.Complete(t.Context(), m), cache.ErrNotFound, name)
}

// Ids are of no numeric class; of a model they are.
func TestRestores(t *testing.T) {
	m, err := cache.NewTokensManifest(cache.NewIdentity(fields(), "abacus-1", 4, nil), count(0, 20))
	if err != nil {
		t.Fatal(err)
	}
	if err := identity().Restores(m, nil); err != nil {
		t.Errorf("ids of another class: %v", err)
	}
	other := fields()
	other[1].Value = "bf16-1"
	wantError(t, cache.NewIdentity(other, "cpu-f32", 8, nil).Restores(m, nil), cache.ErrIncompatible, "codec")
	salted := cache.NewIdentity(fields(), "cpu-f32", 8, []byte("new"))
	wantError(t, salted.Restores(m, nil), cache.ErrIncompatible, "salt")
	if err := salted.Restores(m, [][]byte{nil}); err != nil {
		t.Errorf("ids under an older salt: %v", err)
	}
	_, _, full := stored(t)
	full.Identity = cache.NewIdentity(fields(), "abacus-1", 8, nil)
	wantError(t, identity().Restores(full, nil), cache.ErrIncompatible, "class")
}
