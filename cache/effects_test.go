package cache_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

// checkOrder says whether a store at any moment holds to promise 1: what a description names is there.
func checkOrder(t *testing.T, store *cachetest.Memory) {
	t.Helper()
	ctx := context.Background()
	space := &cache.Space{Store: store}
	has := func(why, name string) {
		if _, ok := store.Bytes(name); !ok {
			t.Errorf("%s stands before %s", why, name)
		}
	}
	for _, name := range store.Names() {
		b, _ := store.Bytes(name)
		switch strings.Split(name, "/")[1] {
		case "nodes":
			n, err := cache.DecodeNode(b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, blob := range n.Rows {
				has(name, "default/blobs/"+blob.Digest.String())
			}
		case "manifests":
			m, err := cache.DecodeManifest(b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, c := range m.Chunks {
				has(name, "default/nodes/"+c.Key.String())
			}
			for _, blob := range m.State {
				has(name, "default/blobs/"+blob.Digest.String())
			}
			if _, err := space.Verify(ctx, m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case "handles":
			h, err := cache.DecodeHandle(b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			has(name, "default/manifests/"+h.Manifest.String())
		}
	}
}

// Promises 1 and 2, and that the same work gives the same names: a process that dies between any two effects
// leaves a store in order, and the next one finishes with the same handle and the same objects.
func TestCrashBetweenAnyTwoEffects(t *testing.T) {
	whole := cachetest.NewMemory()
	counter := cachetest.NewCrash(whole, -1)
	_, want := newDocument(counter, count(100, 28)).mustRead(t)
	for after := range counter.Effects() {
		for _, lost := range []bool{false, true} {
			store := cachetest.NewMemory()
			crash := cachetest.NewCrash(store, after)
			crash.Lost = lost
			if _, _, err := newDocument(crash, count(100, 28)).read(t.Context()); !errors.Is(err, cachetest.ErrCrashed) {
				t.Fatalf("crash after %d of %d effects: %v", after, counter.Effects(), err)
			}
			checkOrder(t, store)
			d := newDocument(store, count(100, 28))
			n, _, err := d.space.Deepest(t.Context(), d.job, d.keys())
			if err != nil {
				t.Fatal(err)
			}
			computed := cachetest.NewFaulty(store)
			d.space.Store = computed
			if _, got := d.mustRead(t); got != want {
				t.Errorf("after %d effects (lost %v, went on from chunk %d): handle %s, want %s", after, lost, n, got, want)
			}
			if err := d.space.DropRolling(t.Context(), d.job, nil); err != nil {
				t.Fatal(err)
			}
			if got := slices.DeleteFunc(store.Names(), isRolling); !slices.Equal(got, slices.DeleteFunc(whole.Names(), isRolling)) {
				t.Errorf("after %d effects the store ends with %v", after, got)
			}
		}
	}
}

func isRolling(name string) bool { return strings.Contains(name, "/rolling/") }

// A crash repeats at most the chunk that was being stored: every earlier node is found again.
func TestCrashLosesAtMostOneChunk(t *testing.T) {
	for after := 0; ; after++ {
		store := cachetest.NewMemory()
		crash := cachetest.NewCrash(store, after)
		d := newDocument(crash, count(100, 28))
		finished := 0
		for i := range d.cuts {
			node, _, err := d.space.PutStep(t.Context(), d.args(i))
			if err != nil {
				break
			}
			finished++
			if err := d.space.DropRolling(t.Context(), d.job, &node); err != nil {
				break
			}
		}
		d.space.Store = store
		n, _, err := d.space.Deepest(t.Context(), d.job, d.keys())
		if err != nil || n < finished {
			t.Fatalf("after %d effects: Deepest = %d, %v; %d chunks were finished", after, n, err, finished)
		}
		if finished == len(d.cuts) {
			return
		}
	}
}

// Promise 2: a lost answer to our own put of a description is read back, and equal is success. A put that did
// nothing is an error, and repeating the work succeeds.
func TestLostAnswers(t *testing.T) {
	for _, kind := range []string{"nodes", "manifests", "handles", "keep", "blobs", "rolling/job"} {
		for _, action := range []cachetest.Action{cachetest.ErrorAfter, cachetest.ErrorBefore} {
			t.Run(fmt.Sprint(kind, " ", action), func(t *testing.T) {
				store := cachetest.NewMemory()
				faulty := cachetest.NewFaulty(store, cachetest.Fault{Op: cachetest.Put, Pattern: "*/" + kind + "/*", Nth: 1, Action: action})
				d := newDocument(faulty, count(100, 28))
				_, _, err := d.read(t.Context())
				described := kind != "blobs" && kind != "rolling/job"
				if wantNil := described && action == cachetest.ErrorAfter; (err == nil) != wantNil {
					t.Fatalf("%v: %v", faulty.Fired(), err)
				}
				if err != nil {
					wantError(t, err, cachetest.ErrInjected, kind)
				}
				if len(faulty.Fired()) != 1 {
					t.Errorf("fired: %v", faulty.Fired())
				}
				checkOrder(t, store)
				m, _ := d.mustRead(t)
				if _, err := d.space.Restore(t.Context(), m, "", d.tokens, blank(d.layout, 28)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A cut upload that left a short object is written again; a short description that nothing else tells about is
// written again, too, where its name proves the bytes, and is damage where it does not.
func TestShortObjects(t *testing.T) {
	for _, kind := range []string{"blobs", "rolling/job", "manifests", "handles", "keep", "nodes"} {
		t.Run(kind, func(t *testing.T) {
			store := cachetest.NewMemory()
			rule := cachetest.Fault{Op: cachetest.Put, Pattern: "*/" + kind + "/*", Nth: 1, Action: cachetest.ShortWrite}
			d := newDocument(cachetest.NewFaulty(store, rule), count(100, 20))
			if _, _, err := d.read(t.Context()); !errors.Is(err, cachetest.ErrInjected) {
				t.Fatalf("short write: %v", err)
			}
			if kind == "nodes" {
				_, _, err := d.read(t.Context())
				wantError(t, err, cache.ErrCorrupt, d.keys()[0].String(), "delete it")
				return
			}
			m, _ := d.mustRead(t)
			checkOrder(t, store)
			if _, err := d.space.Restore(t.Context(), m, "", d.tokens, blank(d.layout, 20)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Repeating a step writes nothing and counts what it found.
func TestPutStepAgain(t *testing.T) {
	d := newDocument(cachetest.NewMemory(), count(100, 20))
	d.keep = func(int) bool { return true }
	first, wrote, err := d.space.PutStep(t.Context(), d.args(0))
	if err != nil {
		t.Fatal(err)
	}
	want := int64(rowBytes(specs(), 8) + fixedBytes(specs()))
	if (wrote != cache.Written{Blobs: 2, Bytes: want}) {
		t.Errorf("first: %+v", wrote)
	}
	second, found, err := d.space.PutStep(t.Context(), d.args(0))
	if err != nil {
		t.Fatal(err)
	}
	if (found != cache.Written{Reused: 2, ReusedBytes: want}) {
		t.Errorf("second: %+v", found)
	}
	a, _ := first.Encode()
	b, _ := second.Encode()
	if string(a) != string(b) {
		t.Error("the two nodes differ")
	}
}

// Lookup takes the deepest node whose rows and recurrent state are both there.
func TestDeepest(t *testing.T) {
	prepare := func(t *testing.T) (*cachetest.Memory, *document, []cache.Node) {
		store := cachetest.NewMemory()
		d := newDocument(store, count(100, 28)) // 8, 16, 24, 28
		d.keep = func(i int) bool { return i == 1 }
		var nodes []cache.Node
		for i := range d.cuts {
			n, _, err := d.space.PutStep(t.Context(), d.args(i))
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
		return store, d, nodes
	}
	drop := func(s *cachetest.Memory, name string) { s.Delete(context.Background(), name) }
	for _, c := range []struct {
		name   string
		job    string
		change func(s *cachetest.Memory, d *document, n []cache.Node)
		want   int
	}{
		{"own rolling state", "job", nil, 4},
		{"kept state alone", "", nil, 2},
		{"another job's rolling state", "other", nil, 2},
		{"node missing", "job", func(s *cachetest.Memory, _ *document, n []cache.Node) { drop(s, "default/nodes/"+n[2].Key.String()) }, 2},
		{"first node missing", "job", func(s *cachetest.Memory, _ *document, n []cache.Node) { drop(s, "default/nodes/"+n[0].Key.String()) }, 0},
		{"rows missing", "job", func(s *cachetest.Memory, _ *document, n []cache.Node) {
			drop(s, "default/blobs/"+n[3].Rows[0].Digest.String())
		}, 3},
		{"rows in the middle missing", "job", func(s *cachetest.Memory, _ *document, n []cache.Node) {
			drop(s, "default/blobs/"+n[1].Rows[0].Digest.String())
		}, 1},
		{"rows cut short", "job", func(s *cachetest.Memory, _ *document, n []cache.Node) {
			s.SetBytes("default/blobs/"+n[2].Rows[0].Digest.String(), []byte("x"))
		}, 2},
		{"state missing", "job", func(s *cachetest.Memory, _ *document, n []cache.Node) {
			drop(s, "default/rolling/job/"+n[3].State[0].Digest.String())
		}, 3},
		{"state cut short", "job", func(s *cachetest.Memory, _ *document, n []cache.Node) {
			s.SetBytes("default/rolling/job/"+n[3].State[0].Digest.String(), []byte("x"))
		}, 3},
		{"rolling state dropped but for one", "job", func(s *cachetest.Memory, d *document, n []cache.Node) {
			d.space.DropRolling(context.Background(), "job", &n[2])
		}, 3},
		{"all rolling state dropped", "job", func(s *cachetest.Memory, d *document, n []cache.Node) {
			d.space.DropRolling(context.Background(), "job", &cache.Node{})
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, d, nodes := prepare(t)
			if c.change != nil {
				c.change(store, d, nodes)
			}
			faulty := cachetest.NewFaulty(store,
				cachetest.Fault{Op: cachetest.Get, Pattern: "*/blobs/*", Action: cachetest.ErrorBefore},
				cachetest.Fault{Op: cachetest.Get, Pattern: "*/rolling/*/*", Action: cachetest.ErrorBefore})
			d.space.Store = faulty
			n, got, err := d.space.Deepest(t.Context(), c.job, d.keys())
			if err != nil || n != c.want || len(got) != n {
				t.Errorf("Deepest = %d, %d nodes, %v; want %d", n, len(got), err, c.want)
			}
			if len(faulty.Fired()) != 0 {
				t.Errorf("blobs were read: %v", faulty.Fired())
			}
		})
	}
}

// A store that does not answer is an error, never a shallower answer.
func TestDeepestPassesFailuresOn(t *testing.T) {
	for _, op := range []cachetest.Op{cachetest.Get, cachetest.Stat} {
		store, d, _ := stored(t)
		d.space.Store = cachetest.NewFaulty(store, cachetest.Fault{Op: op, Nth: 2, Action: cachetest.ErrorBefore})
		_, _, err := d.space.Deepest(t.Context(), d.job, d.keys())
		wantError(t, err, cachetest.ErrInjected)
	}
}

// A manifest is not stored for a state that is not kept, and not from nodes that are no chain.
func TestPutManifestRefuses(t *testing.T) {
	store, d, _ := stored(t)
	_, nodes, err := d.space.Deepest(t.Context(), d.job, d.keys())
	if err != nil || len(nodes) != 3 {
		t.Fatal(nodes, err)
	}
	other := identity()
	other.Producer[0] ^= 1
	before := store.Names()
	for name, c := range map[string]struct {
		id    cache.Identity
		nodes []cache.Node
		kind  error
	}{
		"rolling state":  {d.id, nodes[:2], cache.ErrNotFound},
		"hole":           {d.id, []cache.Node{nodes[0], nodes[2]}, cache.ErrCorrupt},
		"not from start": {d.id, nodes[1:], cache.ErrCorrupt},
		"other producer": {other, nodes, cache.ErrIncompatible},
	} {
		if _, _, err := d.space.PutManifest(t.Context(), c.id, c.nodes); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
	}
	if _, _, err := d.space.PutManifest(t.Context(), d.id, nil); err == nil {
		t.Error("a manifest of nothing was stored")
	}
	if !slices.Equal(store.Names(), before) {
		t.Error("a refused manifest left objects")
	}
}

// Promise 3: what was stored is read back, so a store that keeps other bytes is found out.
func TestPutManifestReadsBack(t *testing.T) {
	store := cachetest.NewMemory()
	d := newDocument(cachetest.NewFaulty(store, cachetest.Fault{Op: cachetest.Get, Pattern: "*/manifests/*", Nth: 1, Action: cachetest.FlipByte}), count(100, 20))
	_, _, err := d.read(t.Context())
	wantError(t, err, cache.ErrCorrupt, "manifests/")
	for _, name := range store.Names() {
		if strings.Contains(name, "/handles/") {
			t.Error("a handle was stored for a manifest that did not read back")
		}
	}
}

// Tenants do not see each other, and a name that is no name is refused.
func TestTenants(t *testing.T) {
	store, d, _ := stored(t)
	other := &cache.Space{Store: store, Tenant: "other"}
	if n, _, err := other.Deepest(t.Context(), d.job, d.keys()); n != 0 || err != nil {
		t.Errorf("another tenant finds %d chunks, %v", n, err)
	}
	for _, tenant := range []string{"..", "a/b", "a b", "/", "é"} {
		s := &cache.Space{Store: store, Tenant: tenant}
		_, _, err := s.Deepest(t.Context(), "", d.keys())
		wantError(t, err, cache.ErrName, "tenant")
	}
	_, _, err := d.space.Deepest(t.Context(), "../x", d.keys())
	wantError(t, err, cache.ErrName, "job")
	wantError(t, d.space.DropRolling(t.Context(), "", nil), cache.ErrName, "job")
}

// Documents come back as they were, and damage is found.
func TestDocuments(t *testing.T) {
	store := cachetest.NewMemory()
	space := &cache.Space{Store: store}
	tokens := []int32{0, 1, 248319, 1<<31 - 1}
	digest, err := space.PutDocument(t.Context(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	again, err := space.PutDocument(t.Context(), tokens)
	if err != nil || again != digest {
		t.Errorf("again: %s, %v", again, err)
	}
	if got, err := space.Document(t.Context(), digest); err != nil || !slices.Equal(got, tokens) {
		t.Errorf("Document = %v, %v", got, err)
	}
	for _, bad := range [][]int32{nil, {}, {1, -1}} {
		if _, err := space.PutDocument(t.Context(), bad); err == nil {
			t.Errorf("%v was stored", bad)
		}
	}
	_, err = space.Document(t.Context(), cache.Digest{})
	wantError(t, err, cache.ErrNotFound, cache.Digest{}.String())
	for body, name := range map[string]string{"abc": "not whole ids", "\xff\xff\xff\xff": "negative", "": "empty"} {
		d := cache.Sum([]byte(body))
		store.SetBytes("default/documents/"+d.String(), []byte(body))
		if _, err := space.Document(t.Context(), d); !errors.Is(err, cache.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	store.SetBytes("default/documents/"+digest.String(), []byte("0123456789abcdef"))
	_, err = space.Document(t.Context(), digest)
	wantError(t, err, cache.ErrCorrupt, digest.String())
	_, err = space.PutDocument(t.Context(), tokens)
	wantError(t, err, cache.ErrCorrupt, digest.String())
}

// Verify counts what it found, misses no damage to a node, and does not need the nodes.
func TestVerify(t *testing.T) {
	store, d, m := stored(t)
	report, err := d.space.Verify(t.Context(), m)
	want := cache.Report{Tokens: 20, Blobs: 4, Bytes: m.Bytes, Nodes: 3, KeysChecked: true}
	if err != nil || report != want {
		t.Errorf("Verify = %+v, %v; want %+v", report, err, want)
	}
	name := "default/nodes/" + d.keys()[1].String()
	store.SetBytes(name, []byte("{}"))
	_, err = d.space.Verify(t.Context(), m)
	wantError(t, err, cache.ErrCorrupt, name)
	store.Delete(t.Context(), name)
	report, err = d.space.Verify(t.Context(), m)
	if err != nil || report.Nodes != 2 || report.NodesMissing != 1 {
		t.Errorf("without a node: %+v, %v", report, err)
	}
	m.Chunks[1].Key[0] ^= 1
	_, err = d.space.Verify(t.Context(), m)
	wantError(t, err, cache.ErrCorrupt, "tokens [8, 16)", "key")
}

// No call writes anything that the list in the package comment does not have.
func TestNamesOfObjects(t *testing.T) {
	store, d, _ := stored(t)
	if _, err := d.space.PutDocument(t.Context(), d.tokens); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, name := range store.Names() {
		kinds[strings.Split(name, "/")[1]]++
	}
	want := map[string]int{"blobs": 4, "nodes": 3, "keep": 1, "manifests": 1, "handles": 1, "documents": 1}
	if !maps.Equal(kinds, want) {
		t.Errorf("stored %v, want %v", kinds, want)
	}
}

// A step whose recurrent state is named alone has the node that it would have with the state, and puts its rows and that.
func TestNamedState(t *testing.T) {
	for _, spooled := range []bool{false, true} {
		whole, named := cachetest.NewMemory(), cachetest.NewMemory()
		put := func(store *cachetest.Memory, edit func(*cache.StepArgs)) (cache.Node, cache.Written, error) {
			d := newDocument(store, count(100, 20))
			if spooled {
				d.space.Spool = cachetest.NewSpool(store, 1<<20)
			}
			a := d.args(0)
			edit(&a)
			if !spooled {
				return d.space.PutStep(t.Context(), a)
			}
			step, err := d.space.Stage(t.Context(), a)
			if err != nil {
				return cache.Node{}, cache.Written{}, err
			}
			defer step.Close()
			return step.Commit(t.Context())
		}
		want, all, err := put(whole, func(*cache.StepArgs) {})
		if err != nil {
			t.Fatal(err)
		}
		got, w, err := put(named, func(a *cache.StepArgs) { a.Named, a.Job = true, "" })
		if err != nil || !sameNode(got, want) {
			t.Errorf("spooled %v: node %+v, not %+v, %v", spooled, got, want, err)
		}
		rest := slices.DeleteFunc(whole.Names(), func(n string) bool { return strings.Contains(n, "/rolling/") })
		if names := named.Names(); !slices.Equal(names, rest) || len(names) == len(whole.Names()) {
			t.Errorf("spooled %v: stored %v, not %v", spooled, names, rest)
		}
		if w.Blobs != len(got.Rows) || all.Blobs != len(got.Rows)+len(got.State) || len(got.State) == 0 {
			t.Errorf("spooled %v: wrote %+v, and %+v with the state", spooled, w, all)
		}
		if _, _, err := put(named, func(a *cache.StepArgs) { a.Named, a.Keep = true, true }); err == nil {
			t.Errorf("spooled %v: a state is kept that is not stored", spooled)
		}
	}
}

func sameNode(a, b cache.Node) bool {
	x, err := a.Encode()
	y, err2 := b.Encode()
	return errors.Join(err, err2) == nil && string(x) == string(y)
}
