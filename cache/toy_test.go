package cache_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

// specs is a layout with every kind of region: row regions with and without lag, fixed ones, one of no size.
func specs() cache.Layout {
	return cache.Layout{
		{Name: "tokens", DType: "i32", Shape: []int{}, Kind: cache.Rows},
		{Name: "layers.0.k", DType: "f32", Shape: []int{2, 3}, Kind: cache.Rows},
		{Name: "layers.1.s", DType: "f32", Shape: []int{4, 5}, Kind: cache.Fixed},
		{Name: "empty", DType: "f32", Shape: []int{0}, Kind: cache.Fixed},
		{Name: "mtp.k", DType: "bf16", Shape: []int{5}, Kind: cache.Rows, Lag: 1},
		{Name: "residual", DType: "f32", Shape: []int{7}, Kind: cache.Fixed},
	}
}

// unit is the size of a row or of a whole, worked out apart from the package.
func unit(s cache.Spec) int {
	n := map[string]int{"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i8": 1}[s.DType]
	for _, d := range s.Shape {
		n *= d
	}
	return n
}

// state is the state after the tokens: every row a digest of the tokens that it depends on, so that two
// documents share bytes exactly where they share a prefix.
func state(layout cache.Layout, tokens []int32) []cache.Region {
	prefix := make([][32]byte, len(tokens)+1)
	for i, t := range tokens {
		prefix[i+1] = sha256.Sum256(binary.LittleEndian.AppendUint32(prefix[i][:], uint32(t)))
	}
	regions := blank(layout, len(tokens))
	for _, r := range regions {
		n := unit(r.Spec())
		switch {
		case r.Name == cache.TokensRegion:
			for i, t := range tokens {
				binary.LittleEndian.PutUint32(r.Data[4*i:], uint32(t))
			}
		case r.Kind == cache.Fixed:
			fill(r.Data, r.Name, prefix[len(tokens)])
		default:
			for i := range max(len(tokens)-r.Lag, 0) {
				fill(r.Data[i*n:(i+1)*n], r.Name, prefix[i+1+r.Lag])
			}
		}
	}
	return regions
}

func fill(b []byte, name string, seed [32]byte) {
	for i := 0; i < len(b); i += 32 {
		seed = sha256.Sum256(append([]byte(name), seed[:]...))
		copy(b[i:], seed[:])
	}
}

// blank has the regions of a state of n tokens, all zero.
func blank(layout cache.Layout, n int) []cache.Region {
	var out []cache.Region
	for _, s := range layout {
		size := unit(s)
		if s.Kind == cache.Rows {
			size *= max(n-s.Lag, 0)
		}
		out = append(out, cache.Region{Name: s.Name, DType: s.DType, Shape: s.Shape, Kind: s.Kind, Lag: s.Lag, Data: make([]byte, size)})
	}
	return out
}

func sameData(a, b []cache.Region) bool {
	return slices.EqualFunc(a, b, func(x, y cache.Region) bool { return slices.Equal(x.Data, y.Data) })
}

// fields is a model's identity as an engine gives it.
func fields() []cache.Field {
	return []cache.Field{{Name: "weights", Value: cache.Sum([]byte("weights")).String()}, {Name: "codec", Value: "f32-1"}}
}

func identity() cache.Identity { return cache.NewIdentity(fields(), "cpu-f32", 8, nil) }

// count is a document of n tokens that begin at first.
func count(first, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(first + i)
	}
	return out
}

// document is one document being read: it stores a chunk at every cut.
type document struct {
	space  *cache.Space
	id     cache.Identity
	job    string
	layout cache.Layout
	tokens []int32
	cuts   []int
	keep   func(i int) bool // nil: the last alone
}

func newDocument(store cache.Store, tokens []int32) *document {
	id := identity()
	return &document{space: &cache.Space{Store: store}, id: id, job: "job", layout: specs(), tokens: tokens, cuts: cache.Boundaries(len(tokens), id.Grid)}
}

func (d *document) keys() []cache.Key { return cache.Keys(d.id.Producer, d.tokens, d.cuts) }

// args is the i-th chunk.
func (d *document) args(i int) cache.StepArgs {
	keys := d.keys()
	a := cache.StepArgs{Identity: d.id, Job: d.job, Key: keys[i], To: d.cuts[i], Keep: i == len(d.cuts)-1}
	if i > 0 {
		a.Parent, a.From = keys[i-1], d.cuts[i-1]
	}
	if d.keep != nil {
		a.Keep = d.keep(i)
	}
	a.Tokens = d.tokens[a.From:a.To]
	a.Regions = state(d.layout, d.tokens[:a.To])
	a.Probe = probe(a.Regions)
	return a
}

// probe is what a toy says: a function of the state.
func probe(regions []cache.Region) cache.Probe {
	sum := sha256.New()
	for _, r := range regions {
		sum.Write(r.Data)
	}
	b := sum.Sum(nil)
	return cache.Probe{Top: []cache.TopLogit{{ID: int32(b[0]), Logit: float32(b[1]) / 7}, {ID: int32(b[2]), Logit: -float32(b[3]) / 3}}, Next: int32(b[0]), Draft: int32(b[4])}
}

// read does what a worker does: it goes on from the deepest stored node, stores the rest, the last chunk with the handle where
// its state is kept, and else makes the handle.
func (d *document) read(ctx context.Context) (cache.Manifest, cache.Digest, error) {
	n, nodes, err := d.space.Deepest(ctx, d.job, d.keys())
	if err != nil {
		return cache.Manifest{}, cache.Digest{}, err
	}
	for i := n; i < len(d.cuts); i++ {
		var last cache.Last
		a := d.args(i)
		whole := a.Keep && i == len(d.cuts)-1
		if whole {
			last, err = d.space.PutLast(ctx, a, nodes, d.handle)
		} else {
			last.Node, _, err = d.space.PutStep(ctx, a)
		}
		if err != nil {
			return cache.Manifest{}, cache.Digest{}, err
		}
		if err := d.space.DropRolling(ctx, d.job, &last.Node); err != nil {
			return cache.Manifest{}, cache.Digest{}, err
		}
		if whole {
			return last.Manifest, cache.Sum(last.Handle.Encode()), nil
		}
		nodes = append(nodes, last.Node)
	}
	m, digest, err := d.space.PutManifest(ctx, d.id, nodes)
	if err != nil {
		return m, cache.Digest{}, err
	}
	digest, err = d.space.PutHandle(ctx, d.handle(m, digest))
	return m, digest, err
}

// handle is the document's handle for a manifest.
func (d *document) handle(_ cache.Manifest, digest cache.Digest) cache.Handle {
	return cache.Handle{Version: cache.HandleVersion, Manifest: digest, Model: d.id.Model, Tokens: len(d.tokens), Tenant: cache.DefaultTenant}
}

// mustRead reads the whole document.
func (d *document) mustRead(t testing.TB) (cache.Manifest, cache.Digest) {
	t.Helper()
	m, handle, err := d.read(context.Background())
	if err != nil {
		t.Fatalf("read document: %v", err)
	}
	return m, handle
}

// stored is a document of 20 tokens that was read into a new store.
func stored(t testing.TB) (*cachetest.Memory, *document, cache.Manifest) {
	t.Helper()
	store := cachetest.NewMemory()
	d := newDocument(store, count(100, 20))
	m, _ := d.mustRead(t)
	return store, d, m
}
