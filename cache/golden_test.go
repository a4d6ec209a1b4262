package cache_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lector/cache"
	"lector/cache/cachetest"
)

// vectors is testdata/vectors.json, which another program has worked out from format.md.
type vectors struct {
	Keys []struct {
		Fields     []cache.Field    `json:"fields"`
		Class      string           `json:"class"`
		Grid       int              `json:"grid"`
		Salt       string           `json:"salt"`
		Tokens     []int32          `json:"tokens"`
		Model      cache.ModelID    `json:"model"`
		Producer   cache.ProducerID `json:"producer"`
		Boundaries []int            `json:"boundaries"`
		Keys       []cache.Key      `json:"keys"`
	} `json:"keys"`
	Store struct {
		Objects map[string]string `json:"objects"`
		Handle  string            `json:"handle"`
	} `json:"store"`
	IDs map[string]string `json:"ids"`
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Promise: the same document has the same keys in every process, on every machine, in every language.
func TestGoldenKeys(t *testing.T) {
	for i, c := range readVectors(t).Keys {
		salt, err := hex.DecodeString(c.Salt)
		if err != nil {
			t.Fatal(err)
		}
		id := cache.NewIdentity(c.Fields, c.Class, c.Grid, salt)
		if id.Model != c.Model || id.Producer != c.Producer {
			t.Errorf("case %d: model %s, producer %s; want %s, %s", i, id.Model, id.Producer, c.Model, c.Producer)
		}
		bounds := cache.Boundaries(len(c.Tokens), c.Grid)
		if !slices.Equal(bounds, c.Boundaries) {
			t.Errorf("case %d: boundaries %v, want %v", i, bounds, c.Boundaries)
		}
		if got := cache.Keys(id.Producer, c.Tokens, bounds); !slices.Equal(got, c.Keys) {
			t.Errorf("case %d: keys %v, want %v", i, got, c.Keys)
		}
	}
}

// goldenRegions is the state of the golden document after p tokens: see make_vectors.py.
func goldenRegions(tokens []int32, p int) []cache.Region {
	regions := blank(cache.Layout{
		{Name: "tokens", DType: "i32", Shape: []int{}, Kind: cache.Rows},
		{Name: "layers.0.k", DType: "f32", Shape: []int{2}, Kind: cache.Rows},
		{Name: "layers.0.s", DType: "f32", Shape: []int{3}, Kind: cache.Fixed},
		{Name: "mtp.k", DType: "f32", Shape: []int{1}, Kind: cache.Rows, Lag: 1},
	}, p)
	first := map[string]int{"layers.0.s": p, "mtp.k": 200}
	for _, r := range regions {
		for i := range r.Data {
			r.Data[i] = byte(first[r.Name] + i)
			if r.Name == "tokens" {
				r.Data[i] = byte(tokens[i/4] >> (8 * (i % 4)))
			}
		}
	}
	return regions
}

// Every byte that is stored of a document is the one that format.md says.
func TestGoldenStore(t *testing.T) {
	want := readVectors(t).Store
	store := cachetest.NewMemory()
	space := &cache.Space{Store: store, Tenant: "golden"}
	id := cache.NewIdentity(fields(), "cpu-f32", 4, []byte("salt"))
	tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 70000}
	if _, err := space.PutDocument(t.Context(), tokens); err != nil {
		t.Fatal(err)
	}
	probes := []cache.Probe{
		{Top: []cache.TopLogit{{ID: 7, Logit: 0.5}, {ID: 2, Logit: -0.1}}, Next: 7, Draft: 3},
		{Top: []cache.TopLogit{{ID: 70000, Logit: 1e-7}, {ID: 0, Logit: -3.25}}, Next: 70000, Draft: 0},
		{Top: []cache.TopLogit{{ID: 5, Logit: 1.5e30}, {ID: 6, Logit: 16777216}, {ID: 1, Logit: 123456}}, Next: 5, Draft: -1},
	}
	bounds := cache.Boundaries(len(tokens), 4)
	var nodes []cache.Node
	var parent cache.Key
	for i, key := range cache.Keys(id.Producer, tokens, bounds) {
		from, to := 4*i, bounds[i]
		node, _, err := space.PutStep(t.Context(), cache.StepArgs{
			Identity: id, Job: "job1", Key: key, Parent: parent, From: from, To: to, Tokens: tokens[from:to],
			Regions: goldenRegions(tokens, to), Probe: probes[i], Keep: i == 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes, parent = append(nodes, node), key
	}
	_, manifest, err := space.PutManifest(t.Context(), id, nodes)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := space.PutHandle(t.Context(), cache.Handle{
		Version: 1, Manifest: manifest, Model: id.Model, Tokens: 10, Tenant: "golden",
		Expires: time.Date(2026, 11, 30, 13, 0, 0, 0, time.FixedZone("CET", 3600)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := cache.HandleName(handle); got != want.Handle {
		t.Errorf("handle %s, want %s", got, want.Handle)
	}
	wantObjects(t, store, want.Objects)
}

// So is every byte of ids that are kept without a state.
func TestGoldenIDs(t *testing.T) {
	store := cachetest.NewMemory()
	id := cache.NewIdentity(fields(), "cpu-f32", 4, []byte("salt"))
	if _, _, err := (&cache.Space{Store: store, Tenant: "golden"}).PutTokens(t.Context(), id, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 70000}); err != nil {
		t.Fatal(err)
	}
	wantObjects(t, store, readVectors(t).IDs)
}

func wantObjects(t *testing.T, store *cachetest.Memory, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, name := range store.Names() {
		b, _ := store.Bytes(name)
		got[name] = hex.EncodeToString(b)
	}
	if diff := cmp.Diff(readable(want), readable(got)); diff != "" {
		t.Errorf("stored objects (-format.md +got):\n%s", diff)
	}
}

// readable turns the bytes of JSON back to text, for the message.
func readable(objects map[string]string) map[string]string {
	out := map[string]string{}
	for name, h := range objects {
		if b, err := hex.DecodeString(h); err == nil && json.Valid(b) {
			h = string(b)
		}
		out[name] = h
	}
	return out
}
