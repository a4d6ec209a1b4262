package cachetest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"lector/cache"
)

// Document is a document that a toy reads into a space, as a worker would: its state is a digest of its tokens, so
// that two documents share bytes exactly where they share a prefix.
type Document struct {
	Space  *cache.Space
	Tokens []int32
	Grid   int              // default 8
	Job    string           // default "job"
	Keep   func(i int) bool // which cells keep their recurrent state beside the last; nil: none
	TTL    time.Duration    // of the handle; 0: never
	Begin  time.Time        // what TTL counts from
	Salt   []byte           // of the tenant; nil: none

	Spooled bool // cells are staged first, as while the next is computed
}

// Count is a document of n token ids that begin at first.
func Count(first, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(first + i)
	}
	return out
}

// Layout is the toy's: row regions with and without lag, fixed ones, one of no size.
func Layout() cache.Layout {
	return cache.Layout{
		{Name: cache.TokensRegion, DType: "i32", Shape: []int{}, Kind: cache.Rows},
		{Name: "layers.0.k", DType: "f32", Shape: []int{2, 3}, Kind: cache.Rows},
		{Name: "layers.1.s", DType: "f32", Shape: []int{4, 5}, Kind: cache.Fixed},
		{Name: "empty", DType: "f32", Shape: []int{0}, Kind: cache.Fixed},
		{Name: "mtp.k", DType: "bf16", Shape: []int{5}, Kind: cache.Rows, Lag: 1},
		{Name: "residual", DType: "i8", Shape: []int{7}, Kind: cache.Fixed},
	}
}

// Identity is the toy's.
func (d *Document) Identity() cache.Identity {
	grid := d.Grid
	if grid == 0 {
		grid = 8
	}
	return cache.NewIdentity([]cache.Field{{Name: "codec", Value: "toy"}}, "cpu-f32", grid, d.Salt)
}

// Blank has the regions of a state of n tokens, all zero.
func Blank(n int) []cache.Region {
	var out []cache.Region
	for _, s := range Layout() {
		size := map[string]int{"f32": 4, "i32": 4, "bf16": 2, "i8": 1}[s.DType]
		for _, dim := range s.Shape {
			size *= dim
		}
		if s.Kind == cache.Rows {
			size *= max(n-s.Lag, 0)
		}
		out = append(out, cache.Region{Name: s.Name, DType: s.DType, Shape: s.Shape, Kind: s.Kind, Lag: s.Lag, Data: make([]byte, size)})
	}
	return out
}

// State is the toy's state after the tokens.
func State(tokens []int32) []cache.Region {
	prefix := make([][32]byte, len(tokens)+1)
	for i, t := range tokens {
		prefix[i+1] = sha256.Sum256(binary.LittleEndian.AppendUint32(prefix[i][:], uint32(t)))
	}
	regions := Blank(len(tokens))
	for _, r := range regions {
		switch {
		case r.Name == cache.TokensRegion:
			for i, t := range tokens {
				binary.LittleEndian.PutUint32(r.Data[4*i:], uint32(t))
			}
		case r.Kind == cache.Fixed:
			fill(r.Data, r.Name, prefix[len(tokens)])
		default:
			n := len(r.Data) / max(len(tokens)-r.Lag, 1)
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

// Steps stores the first n cells of the document (all for a negative n), from the deepest that is stored, and returns
// the nodes of those cells.
func (d *Document) Steps(ctx context.Context, n int) ([]cache.Node, error) {
	if n < 0 {
		n = len(d.cuts())
	}
	nodes, err := d.deepest(ctx, n)
	for i := len(nodes); i < n && err == nil; i++ {
		var node cache.Node
		if node, err = d.put(ctx, d.args(i)); err == nil {
			nodes = append(nodes, node)
			err = d.Space.DropRolling(ctx, d.job(), &node)
		}
	}
	return nodes, err
}

// deepest returns the nodes of those of the first n cells that are stored with a state to go on from.
func (d *Document) deepest(ctx context.Context, n int) ([]cache.Node, error) {
	_, nodes, err := d.Space.Deepest(ctx, d.job(), cache.Keys(d.Identity().Producer, d.Tokens, d.cuts())[:n])
	return nodes, err
}

func (d *Document) job() string {
	if d.Job == "" {
		return "job"
	}
	return d.Job
}

// cuts are where cells end.
func (d *Document) cuts() []int { return cache.Boundaries(len(d.Tokens), d.Identity().Grid) }

// args describes a cell.
func (d *Document) args(i int) cache.StepArgs {
	id, cuts := d.Identity(), d.cuts()
	keys := cache.Keys(id.Producer, d.Tokens, cuts)
	a := cache.StepArgs{Identity: id, Job: d.job(), Key: keys[i], To: cuts[i], Keep: i == len(cuts)-1 || d.Keep != nil && d.Keep(i)}
	if i > 0 {
		a.Parent, a.From = keys[i-1], cuts[i-1]
	}
	a.Tokens, a.Regions = d.Tokens[a.From:a.To], State(d.Tokens[:a.To])
	a.Probe = cache.Probe{Top: []cache.TopLogit{{ID: int32(i), Logit: float32(a.To) / 7}}, Next: d.Tokens[a.To-1], Draft: -1}
	return a
}

// put stores one cell.
func (d *Document) put(ctx context.Context, a cache.StepArgs) (cache.Node, error) {
	if !d.Spooled {
		node, _, err := d.Space.PutStep(ctx, a)
		return node, err
	}
	step, err := d.Space.Stage(ctx, a)
	if err != nil {
		return cache.Node{}, err
	}
	node, _, err := step.Commit(ctx)
	return node, errors.Join(err, step.Close())
}

// Read stores the whole document and a handle for it: with the last cell, where that is not stored yet.
func (d *Document) Read(ctx context.Context) (cache.Digest, cache.Manifest, error) {
	all := len(d.cuts())
	nodes, err := d.deepest(ctx, all)
	if err == nil && len(nodes) < all {
		first := all - 1
		if d.Spooled {
			first = all
		}
		nodes, err = d.Steps(ctx, first)
	}
	if err != nil {
		return cache.Digest{}, cache.Manifest{}, err
	}
	if len(nodes) == all {
		m, h, err := d.Space.PutSnapshot(ctx, d.Identity(), nodes, d.handle)
		return cache.Sum(h.Encode()), m, err
	}
	l, err := d.Space.PutLast(ctx, d.args(all-1), nodes, d.handle)
	if err == nil {
		err = d.Space.DropRolling(ctx, d.job(), &l.Node)
	}
	return cache.Sum(l.Handle.Encode()), l.Manifest, err
}

// handle is the document's handle for a manifest.
func (d *Document) handle(_ cache.Manifest, digest cache.Digest) cache.Handle {
	h := cache.Handle{Version: cache.HandleVersion, Manifest: digest, Model: d.Identity().Model, Tokens: len(d.Tokens), Tenant: d.Space.TenantName()}
	if d.TTL > 0 {
		h.Expires = d.Begin.Add(d.TTL).UTC()
	}
	return h
}

// Check restores a stored handle and holds it against the toy's state after the tokens.
func Check(ctx context.Context, s *cache.Space, handle cache.Digest, tokens []int32) error {
	h, err := s.Handle(ctx, handle)
	if err != nil {
		return err
	}
	m, err := s.Manifest(ctx, h.Manifest)
	if err != nil {
		return err
	}
	got := Blank(len(tokens))
	if _, err := s.Restore(ctx, m, "", tokens, got); err != nil {
		return err
	}
	for i, want := range State(tokens) {
		if string(got[i].Data) != string(want.Data) {
			return fmt.Errorf("region %s was restored to other bytes", want.Name)
		}
	}
	return nil
}
