package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

// wantError checks what an error is and what it names.
func wantError(t *testing.T, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want %v", err, kind)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is more than one line", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not name %q", err, p)
		}
	}
}

// A blob that is flipped, cut, too long or gone is refused by name, and no byte of it reaches a region.
func TestDamagedBlobs(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(store *cachetest.Memory, name string)
		kind   error
	}{
		{"flipped", func(s *cachetest.Memory, n string) { b, _ := s.Bytes(n); b[len(b)/2] ^= 1; s.SetBytes(n, b) }, cache.ErrCorrupt},
		{"cut", func(s *cachetest.Memory, n string) { b, _ := s.Bytes(n); s.SetBytes(n, b[:len(b)-1]) }, cache.ErrCorrupt},
		{"emptied", func(s *cachetest.Memory, n string) { s.SetBytes(n, nil) }, cache.ErrCorrupt},
		{"longer", func(s *cachetest.Memory, n string) { b, _ := s.Bytes(n); s.SetBytes(n, append(b, 0)) }, cache.ErrCorrupt},
		{"missing", func(s *cachetest.Memory, n string) { s.Delete(context.Background(), n) }, cache.ErrNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, part := range []string{"rows", "state"} {
				store, d, m := stored(t)
				blob, where := m.Chunks[1].Rows[0].Digest, []string{"tokens [8, 16)", "tokens to mtp.k"}
				if part == "state" {
					blob, where = m.State[0].Digest, []string{"recurrent state at token 20", "layers.1.s to residual"}
				}
				c.damage(store, "default/blobs/"+blob.String())
				regions := blank(d.layout, 20)
				_, err := d.space.Restore(t.Context(), m, "", nil, regions)
				wantError(t, err, c.kind, append(where, blob.String())...)
				for _, r := range regions {
					n := unit(r.Spec())
					damaged := r.Data
					switch {
					case (part == "state") != (r.Kind == cache.Fixed):
						continue
					case r.Kind == cache.Rows:
						damaged = r.Data[(8-r.Lag)*n : (16-r.Lag)*n]
					}
					if len(bytes.Trim(damaged, "\x00")) != 0 {
						t.Errorf("%s: bytes of the damaged blob reached region %s", part, r.Name)
					}
				}
				_, err = d.space.Verify(t.Context(), m)
				wantError(t, err, c.kind, append(where, blob.String())...)
			}
		})
	}
}

// After the damaged object is deleted, reading the document again puts everything right.
func TestDamageCanBeRepaired(t *testing.T) {
	store, d, m := stored(t)
	name := "default/blobs/" + m.Chunks[1].Rows[0].Digest.String()
	if err := store.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if n, _, err := d.space.Deepest(t.Context(), "job", d.keys()); n != 0 || err != nil {
		t.Errorf("Deepest = %d, %v; only the state at the end is kept", n, err)
	}
	again, _ := d.mustRead(t)
	if _, err := d.space.Restore(t.Context(), again, "", d.tokens, blank(d.layout, 20)); err != nil {
		t.Error(err)
	}
}

// A model whose regions are not exactly those of the snapshot is refused before anything is read.
func TestAnotherShape(t *testing.T) {
	store, d, m := stored(t)
	edit := func(f func(l cache.Layout) cache.Layout) cache.Layout { return f(slices.Clone(specs())) }
	for name, c := range map[string]struct {
		layout cache.Layout
		names  string
	}{
		"shape":   {edit(func(l cache.Layout) cache.Layout { l[1].Shape = []int{3, 2}; return l }), "layers.0.k f32 [3 2]"},
		"size":    {edit(func(l cache.Layout) cache.Layout { l[2].Shape = []int{4, 6}; return l }), "layers.1.s f32 [4 6]"},
		"dtype":   {edit(func(l cache.Layout) cache.Layout { l[4].DType = "f16"; return l }), "mtp.k f16"},
		"lag":     {edit(func(l cache.Layout) cache.Layout { l[4].Lag = 2; return l }), "mtp.k bf16 [5] rows lag 2"},
		"name":    {edit(func(l cache.Layout) cache.Layout { l[5].Name = "wide"; return l }), "wide"},
		"kind":    {edit(func(l cache.Layout) cache.Layout { l[5].Kind = cache.Rows; return l }), "residual f32 [7] rows"},
		"order":   {edit(func(l cache.Layout) cache.Layout { l[0], l[1] = l[1], l[0]; return l }), "region 0"},
		"fewer":   {edit(func(l cache.Layout) cache.Layout { return l[:5] }), "residual"},
		"more":    {edit(func(l cache.Layout) cache.Layout { return append(l, cache.Spec{Name: "more", DType: "f32"}) }), "more"},
		"unknown": {edit(func(l cache.Layout) cache.Layout { l[5].DType = "f64"; return l }), "residual f64"},
	} {
		faulty := cachetest.NewFaulty(store, cachetest.Fault{Op: cachetest.Get, Action: cachetest.ErrorBefore})
		space := &cache.Space{Store: faulty}
		_, err := space.Restore(t.Context(), m, "", nil, blank(c.layout, 20))
		wantError(t, err, cache.ErrIncompatible, c.names)
		if len(faulty.Fired()) != 0 {
			t.Errorf("%s: blobs were read", name)
		}
	}
	_, err := d.space.Restore(t.Context(), m, "", nil, blank(specs(), 19))
	wantError(t, err, cache.ErrIncompatible, "region tokens", "20 tokens")
	_, err = d.space.Restore(t.Context(), m, "", count(101, 20), blank(specs(), 20))
	wantError(t, err, cache.ErrIncompatible, "tokens [0, 8)")
	_, err = d.space.Restore(t.Context(), m, "", d.tokens[:19], blank(specs(), 20))
	wantError(t, err, cache.ErrIncompatible, "19")
}

// A manifest whose parts do not agree is refused, however it came to be, and huge claims overflow nothing.
func TestInconsistentManifests(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(m *cache.Manifest)
		part string
	}{
		"tokens of a chunk": {func(m *cache.Manifest) { m.Chunks[1].Tokens[0] ^= 1 }, "region tokens, tokens [8, 16)"},
		"total":             {func(m *cache.Manifest) { m.Bytes++ }, "its layout has"},
		"huge row":          {func(m *cache.Manifest) { m.Layout[1].Shape = []int{1 << 30, 1 << 14} }, "layers.0.k"},
		"huge shape":        {func(m *cache.Manifest) { m.Layout[2].Shape = []int{1 << 31, 1 << 31, 1 << 31} }, "layers.1.s"},
		"huge sum": {func(m *cache.Manifest) {
			m.Layout[2].Shape = []int{1 << 30, 1 << 16}
			m.Layout[5].Shape = []int{1 << 30, 1 << 16}
		}, "beyond"},
		"huge blob":     {func(m *cache.Manifest) { m.State[0].Size = 1 << 62 }, "size 4611686018427387904"},
		"negative blob": {func(m *cache.Manifest) { m.State[0].Size = -1 }, "size -1"},
		"fewer blobs":   {func(m *cache.Manifest) { m.State = nil }, "recurrent state"},
		"hole":          {func(m *cache.Manifest) { m.Chunks = append(m.Chunks[:1], m.Chunks[2:]...) }, "chunk [16, 20) follows token 8"},
		"no chunks":     {func(m *cache.Manifest) { m.Chunks = nil }, "token 0 of 20"},
		"no tokens":     {func(m *cache.Manifest) { m.Tokens = 0 }, "bytes"},
		"many tokens":   {func(m *cache.Manifest) { m.Tokens = 1 << 40 }, "no possible count"},
		"producer":      {func(m *cache.Manifest) { m.Identity.Producer[0] ^= 1 }, "producer"},
	} {
		_, d, m := stored(t)
		c.edit(&m)
		_, err := d.space.Restore(t.Context(), m, "", nil, blank(d.layout, 20))
		if !errors.Is(err, cache.ErrCorrupt) || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v, want it to name %q", name, err, c.part)
		}
	}
}

// Every part of an identity counts, and the message names the one that differs with both values.
func TestCompatible(t *testing.T) {
	other := cache.Sum([]byte("an edited weight byte")).String()
	set := func(i int, value string) []cache.Field { f := fields(); f[i].Value = value; return f }
	want := identity()
	for _, c := range []struct {
		name  string
		have  cache.Identity
		parts []string
	}{
		{"edited weight", cache.NewIdentity(set(0, other), "cpu-f32", 8, nil), []string{"weights: ", other[:12], fields()[0].Value[:12]}},
		{"another codec", cache.NewIdentity(set(1, "bf16-1"), "cpu-f32", 8, nil), []string{"codec: ", "bf16-1", "f32-1"}},
		{"field missing", cache.NewIdentity(fields()[:1], "cpu-f32", 8, nil), []string{"codec", "does not say"}},
		{"field more", cache.NewIdentity(append(fields(), cache.Field{Name: "x", Value: "y"}), "cpu-f32", 8, nil), []string{"x: ", "y"}},
		{"order", cache.NewIdentity([]cache.Field{fields()[1], fields()[0]}, "cpu-f32", 8, nil), []string{"codec", "weights"}},
		{"salt", cache.NewIdentity(fields(), "cpu-f32", 8, []byte("another")), []string{"model id", "salt"}},
		{"class", cache.NewIdentity(fields(), "abacus-1", 8, nil), []string{"class: ", "abacus-1", "cpu-f32"}},
	} {
		t.Run(c.name, func(t *testing.T) { wantError(t, want.Compatible(c.have), cache.ErrIncompatible, c.parts...) })
	}
	for _, have := range []cache.Identity{want, cache.NewIdentity(fields(), "cpu-f32", 16, nil)} {
		if err := want.Compatible(have); err != nil {
			t.Errorf("%+v is refused: %v", have, err)
		}
	}
	metal := cache.NewIdentity(fields(), "metal-h1", 8, nil)
	if err := want.Compatible(metal); err != nil || cache.Agree("metal-h1", "cpu-f32") != cache.Bounded || cache.Agree("metal-h1", "metal-h1") != cache.Exact {
		t.Errorf("state of a class that agrees within bounds: %v", err)
	}
	unknown := cache.NewIdentity(fields(), "abacus-1", 8, nil)
	wantError(t, unknown.Compatible(unknown), cache.ErrIncompatible, "class")
}

// Every stored description with one byte changed is damaged, whichever byte it is.
func TestEveryByteOfDescriptionsCounts(t *testing.T) {
	store, d, _ := stored(t)
	read := map[string]func(name string) error{
		"nodes": func(string) error { _, _, err := d.space.Deepest(t.Context(), "job", d.keys()); return err },
		"manifests": func(name string) error {
			_, err := d.space.Manifest(t.Context(), digestOf(t, name))
			return err
		},
		"handles": func(name string) error { _, err := d.space.Handle(t.Context(), digestOf(t, name)); return err },
	}
	for _, name := range store.Names() {
		kind := strings.Split(name, "/")[1]
		if read[kind] == nil {
			continue
		}
		whole, _ := store.Bytes(name)
		for i := range whole {
			b := slices.Clone(whole)
			b[i] ^= 1
			store.SetBytes(name, b)
			if err := read[kind](name); !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible) {
				t.Fatalf("%s with byte %d changed (%q): %v", name, i, b[max(i-8, 0):min(i+8, len(b))], err)
			}
		}
		for _, b := range [][]byte{whole[:len(whole)-1], nil, append(slices.Clone(whole), '\n'), append(slices.Clone(whole), "{}"...)} {
			store.SetBytes(name, b)
			wantError(t, read[kind](name), cache.ErrCorrupt)
		}
		store.SetBytes(name, whole)
		if err := read[kind](name); err != nil {
			t.Fatal(err)
		}
	}
}

func digestOf(t *testing.T, name string) cache.Digest {
	t.Helper()
	d, err := cache.ParseDigest(name[strings.LastIndexByte(name, '/')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A node under the name of another is not taken for it.
func TestSwappedNodes(t *testing.T) {
	store, d, _ := stored(t)
	keys := d.keys()
	b, _ := store.Bytes("default/nodes/" + keys[1].String())
	store.SetBytes("default/nodes/"+keys[0].String(), b)
	_, _, err := d.space.Deepest(t.Context(), "job", keys)
	wantError(t, err, cache.ErrCorrupt, keys[0].String(), keys[1].String())
}

// A whole node that does not follow the one before it is not taken for a part of the chain.
func TestNodesOfAnotherChain(t *testing.T) {
	for what, edit := range map[string]func(n *cache.Node){
		"parent": func(n *cache.Node) { n.Parent[0] ^= 1 },
		"range":  func(n *cache.Node) { n.From-- },
	} {
		store := cachetest.NewMemory()
		d := newDocument(store, count(100, 20))
		d.layout = nil // no sizes that depend on the range
		d.mustRead(t)
		name := "default/nodes/" + d.keys()[1].String()
		b, _ := store.Bytes(name)
		n, err := cache.DecodeNode(b)
		if err != nil {
			t.Fatal(err)
		}
		edit(&n)
		if b, err = n.Encode(); err != nil {
			t.Fatal(err)
		}
		store.SetBytes(name, b)
		if _, _, err = d.space.Deepest(t.Context(), "job", d.keys()); !errors.Is(err, cache.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

// A step whose parts do not belong together is refused before anything is stored.
func TestPutStepRefuses(t *testing.T) {
	nan := float32(math.NaN())
	for name, edit := range map[string]func(a *cache.StepArgs){
		"key":           func(a *cache.StepArgs) { a.Key[0] ^= 1 },
		"parent":        func(a *cache.StepArgs) { a.Parent[0] ^= 1 },
		"no parent":     func(a *cache.StepArgs) { a.Parent = cache.Key{} },
		"other tokens":  func(a *cache.StepArgs) { a.Tokens = count(0, 8) },
		"fewer tokens":  func(a *cache.StepArgs) { a.Tokens = a.Tokens[:7] },
		"empty":         func(a *cache.StepArgs) { a.To = a.From; a.Tokens = nil },
		"backwards":     func(a *cache.StepArgs) { a.To = a.From - 1 },
		"short data":    func(a *cache.StepArgs) { a.Regions[1].Data = a.Regions[1].Data[:8] },
		"twice":         func(a *cache.StepArgs) { a.Regions[1].Name = a.Regions[2].Name },
		"dtype":         func(a *cache.StepArgs) { a.Regions[1].DType = "f64" },
		"negative":      func(a *cache.StepArgs) { a.Regions[1].Shape = []int{-2, -3} },
		"huge":          func(a *cache.StepArgs) { a.Regions[1].Shape = []int{1 << 30, 1 << 30, 1 << 30} },
		"other ids":     func(a *cache.StepArgs) { a.Regions[0].Data[40]++ },
		"not finite":    func(a *cache.StepArgs) { a.Probe.Top[0].Logit = nan },
		"job":           func(a *cache.StepArgs) { a.Job = "a/b" },
		"no job":        func(a *cache.StepArgs) { a.Job = "" },
		"other id":      func(a *cache.StepArgs) { a.Identity.Producer[0] ^= 1 },
		"other grid":    func(a *cache.StepArgs) { a.Identity.Grid = 0 },
		"region name":   func(a *cache.StepArgs) { a.Regions[1].Name = "a/b" },
		"negative lag":  func(a *cache.StepArgs) { a.Regions[1].Lag = -1 },
		"fixed lag":     func(a *cache.StepArgs) { a.Regions[2].Lag = 1 },
		"unknown kind":  func(a *cache.StepArgs) { a.Regions[2].Kind = 7 },
		"unprintable":   func(a *cache.StepArgs) { a.Identity.Fields[0].Value = "é" },
		"tenant (none)": nil,
	} {
		t.Run(name, func(t *testing.T) {
			store := cachetest.NewMemory()
			d := newDocument(store, count(100, 20))
			a := d.args(1)
			if edit != nil {
				edit(&a)
			} else {
				d.space.Tenant = "../other"
			}
			if _, _, err := d.space.PutStep(t.Context(), a); err == nil {
				t.Error("it was stored")
			}
			if names := store.Names(); len(names) != 0 {
				t.Errorf("store has %v", names)
			}
		})
	}
}

// Two computations of one key that differ are an alarm; a damaged node is not taken for one.
func TestDiverged(t *testing.T) {
	store, d, _ := stored(t)
	name := "default/nodes/" + d.keys()[1].String()
	whole, _ := store.Bytes(name)
	for part, edit := range map[string]func(a *cache.StepArgs){
		"rows":            func(a *cache.StepArgs) { a.Regions[1].Data[len(a.Regions[1].Data)-1] ^= 1 },
		"recurrent state": func(a *cache.StepArgs) { a.Regions[2].Data[0] ^= 1 },
		"probe":           func(a *cache.StepArgs) { a.Probe.Top[0].Logit = math.Nextafter32(a.Probe.Top[0].Logit, 100) },
		"layout":          func(a *cache.StepArgs) { a.Regions[1].Shape = []int{3, 2} },
	} {
		a := d.args(1)
		edit(&a)
		_, _, err := d.space.PutStep(t.Context(), a)
		wantError(t, err, cache.ErrDiverged, d.keys()[1].String(), cache.Sum(whole).String(), part)
	}
	if b, _ := store.Bytes(name); !bytes.Equal(b, whole) {
		t.Error("the standing node was overwritten")
	}
	a := d.args(1)
	a.Regions[1].Data[len(a.Regions[1].Data)-1] ^= 1
	b := slices.Clone(whole)
	digit := &b[bytes.Index(b, []byte(`"rows":[{"digest":"`))+20]
	*digit = map[bool]byte{true: '1', false: '0'}[*digit == '0'] // still a digest
	store.SetBytes(name, b)
	_, _, err := d.space.PutStep(t.Context(), a)
	wantError(t, err, cache.ErrCorrupt, name, "checksum", "delete it")
	if errors.Is(err, cache.ErrDiverged) {
		t.Error("a damaged node raised the alarm")
	}
}

// A cancelled restore ends with the context's error.
func TestRestoreCancelled(t *testing.T) {
	_, d, m := stored(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.space.Restore(ctx, m, "", nil, blank(d.layout, 20))
	wantError(t, err, context.Canceled)
}

// slowStore gives a blob's bytes only after cancel was called in the middle of it.
type slowStore struct {
	cache.Store
	cancel func()
}

func (s slowStore) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	r, err := s.Store.Get(ctx, name, off, n)
	if err != nil || !strings.Contains(name, "/blobs/") {
		return r, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, 3), readerFunc(func(p []byte) (int, error) { s.cancel(); return r.Read(p[:1]) }), r), r}, nil
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Cancelling takes effect in the middle of a blob.
func TestRestoreCancelledMidway(t *testing.T) {
	store, d, m := stored(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.space.Store = slowStore{store, cancel}
	_, err := d.space.Restore(ctx, m, "", nil, blank(d.layout, 20))
	wantError(t, err, context.Canceled)
}

// Newer formats are refused by name instead of being taken for damage.
func TestNewerVersions(t *testing.T) {
	for what, decode := range map[string]func([]byte) error{
		"node":     func(b []byte) error { _, err := cache.DecodeNode(b); return err },
		"manifest": func(b []byte) error { _, err := cache.DecodeManifest(b); return err },
		"handle":   func(b []byte) error { _, err := cache.DecodeHandle(b); return err },
	} {
		wantError(t, decode([]byte(`{"version":2,"colour":"blue"}`)), cache.ErrIncompatible, what, "version 2", "newer lector")
		for _, b := range []string{`{"version":0}`, `{"version":-1}`, `{}`, `null`, `[]`, ``, `{"version":1.5}`, `{"version":1,"colour":"blue"}`} {
			wantError(t, decode([]byte(b)), cache.ErrCorrupt, what)
		}
		wantError(t, decode(bytes.Repeat([]byte(" "), 9<<20)), cache.ErrCorrupt, fmt.Sprint(9<<20))
	}
}
