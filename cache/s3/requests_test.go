package s3_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
)

// requests counts what the server has seen since it was last asked, by method and kind of object, and forgets it.
func (s *strict) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := map[string]int{}
	for _, line := range s.seen {
		method, key, _ := strings.Cut(line, " ")
		count[method+" "+strings.Split(key, "/")[1]]++
	}
	s.seen = nil
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%s %d", kind, count[kind]))
	}
	return strings.Join(out, ", ")
}

// oneStep is a state of four tokens, of one blob of rows and one of as many bytes of recurrent state as are told.
func oneStep(bytes int) cache.StepArgs {
	d := cachetest.Document{}
	id, tokens := d.Identity(), cachetest.Count(3, 4)
	regions := []cache.Region{
		{Name: cache.TokensRegion, DType: "i32", Shape: []int{}, Kind: cache.Rows, Data: []byte("\x03\x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00\x06\x00\x00\x00")},
		{Name: "s", DType: "i8", Shape: []int{bytes}, Kind: cache.Fixed, Data: make([]byte, bytes)},
	}
	return cache.StepArgs{
		Identity: id, Key: cache.Keys(id.Producer, tokens, []int{4})[0], To: 4, Tokens: tokens, Regions: regions, Keep: true,
		Probe: cache.Probe{Top: []cache.TopLogit{{ID: 1, Logit: 2}}, Next: 1, Draft: -1},
	}
}

// handleOf makes handles of a model.
func handleOf(space *cache.Space, id cache.Identity) cache.Handler {
	return func(m cache.Manifest, d cache.Digest) cache.Handle {
		return cache.Handle{Version: cache.HandleVersion, Manifest: d, Model: id.Model, Tokens: m.Tokens, Tenant: space.TenantName()}
	}
}

// saveOne stores oneStep up to a handle.
func saveOne(t *testing.T, space *cache.Space, bytes int) {
	t.Helper()
	a := oneStep(bytes)
	node, _, err := space.PutStep(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = space.PutSnapshot(t.Context(), a.Identity, []cache.Node{node}, handleOf(space, a.Identity)); err != nil {
		t.Fatal(err)
	}
}

// A last chunk that is stored with its handle asks for no blob that it has just sent.
func TestRequestsOfALastChunk(t *testing.T) {
	server := &strict{}
	space := &cache.Space{Store: open(t, server.serve(t))}
	a := oneStep(1000)
	if _, err := space.PutLast(t.Context(), a, nil, handleOf(space, a.Identity)); err != nil {
		t.Fatal(err)
	}
	want := "GET manifests 1, PUT blobs 2, PUT handles 1, PUT keep 1, PUT manifests 1, PUT nodes 1"
	if got := server.requests(); got != want {
		t.Errorf("one chunk:\n%s\nwant\n%s", got, want)
	}
}

// A save makes these requests and no others: at first, when all of it stands, and when an earlier writer died behind the
// blobs. A large blob is asked for before it is sent, and not sent where it stands; a small one is sent.
func TestRequestsOfASave(t *testing.T) {
	for _, c := range []struct {
		name                string
		bytes               int
		first, again, crash string
	}{
		{
			"small", 1000,
			"GET manifests 1, HEAD blobs 2, PUT blobs 2, PUT handles 1, PUT keep 1, PUT manifests 1, PUT nodes 1",
			"GET handles 1, GET keep 1, GET manifests 2, GET nodes 1, HEAD blobs 4, HEAD handles 1, HEAD keep 1, HEAD manifests 1, HEAD nodes 1, " +
				"PUT blobs 2, PUT handles 1, PUT keep 1, PUT manifests 1, PUT nodes 1",
			"GET keep 1, GET manifests 1, HEAD blobs 4, HEAD keep 1, PUT blobs 2, PUT handles 1, PUT keep 1, PUT manifests 1, PUT nodes 1",
		},
		{
			"large", 1 << 20,
			"GET manifests 1, HEAD blobs 3, PUT blobs 2, PUT handles 1, PUT keep 1, PUT manifests 1, PUT nodes 1",
			"GET handles 1, GET keep 1, GET manifests 2, GET nodes 1, HEAD blobs 5, HEAD handles 1, HEAD keep 1, HEAD manifests 1, HEAD nodes 1, " +
				"PUT blobs 1, PUT handles 1, PUT keep 1, PUT manifests 1, PUT nodes 1",
			"GET keep 1, GET manifests 1, HEAD blobs 5, HEAD keep 1, PUT blobs 1, PUT handles 1, PUT keep 1, PUT manifests 1, PUT nodes 1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := &strict{}
			day := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC) // the server's
			space := &cache.Space{Store: open(t, server.serve(t)), Now: func() time.Time { return day }}
			saveOne(t, space, c.bytes)
			if got := server.requests(); got != c.first {
				t.Errorf("at first:\n%s\nwant\n%s", got, c.first)
			}
			saveOne(t, space, c.bytes)
			if got := server.requests(); got != c.again {
				t.Errorf("all of it again:\n%s\nwant\n%s", got, c.again)
			}
			server.forget("nodes", "manifests", "handles")
			saveOne(t, space, c.bytes)
			if got := server.requests(); got != c.crash {
				t.Errorf("when a writer has died behind the blobs:\n%s\nwant\n%s", got, c.crash)
			}
		})
	}
}

// forget drops all objects of these kinds.
func (s *strict) forget(kinds ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.objects, func(key string, _ []byte) bool { return slices.Contains(kinds, strings.Split(key, "/")[1]) })
}
