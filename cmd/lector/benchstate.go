package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/engine/bench"
)

// storedState is one state on its way into a store and back.
type storedState struct {
	*benchRun
	identity cache.Identity
	space    *cache.Space // where all of it is stored at once
	cells    *cache.Space // where it is stored cell by cell
	temp     string       // folder on the disk that is measured
	tokens   []engine.Token
	rows     []bench.Row  // rowSave, rowLast, rowRestore and rowResumed are filled
	handle   cache.Digest // in cells
}

// timed adds the time that do takes to a row. What was deleted before is off the disk by then.
func (t *storedState) timed(row int, do func() error) error {
	if err := settle(t.temp); err != nil {
		return err
	}
	start := time.Now()
	err := do()
	t.took(row, time.Since(start).Seconds())
	return err
}

func (t *storedState) took(row int, seconds float64) {
	t.rows[row].Samples = append(t.rows[row].Samples, seconds)
}

// save stores the state as one step with all that a handle needs.
func (t *storedState) save(ctx context.Context, seq engine.Sequence, probe engine.Probe) error {
	return t.timed(rowSave, func() error {
		regions, err := seq.Regions()
		if err != nil {
			return err
		}
		id, n := t.identity, len(t.tokens)
		last, err := t.space.PutLast(ctx, cache.StepArgs{
			Identity: id, Key: cache.Keys(id.Producer, t.tokens, []int{n})[0], To: n, Tokens: t.tokens,
			Regions: cacheRegions(regions), Probe: cacheProbe(probe), Keep: true,
		}, nil, t.handleIn(t.space))
		for i := range t.rows {
			t.rows[i].Bytes = last.Manifest.Bytes
		}
		return err
	})
}

// handleIn makes handles of a space.
func (t *storedState) handleIn(space *cache.Space) cache.Handler {
	return func(m cache.Manifest, d cache.Digest) cache.Handle {
		return cache.Handle{Version: cache.HandleVersion, Manifest: d, Model: t.identity.Model, Tokens: m.Tokens, Tenant: space.TenantName()}
	}
}

// benchJob is whose the rolling states are.
const benchJob = "bench"

// saveCells stores the state as an ingest does, cell by cell. The clock runs for the last one and the handle alone: a store
// that keeps up has those before by the time that the last token is read. Their recurrent states are lost by then, and the
// last one's stands for each: it has their size.
func (t *storedState) saveCells(ctx context.Context, seq engine.Sequence, probe engine.Probe) error {
	regions, err := seq.Regions()
	if err != nil {
		return err
	}
	id, whole := t.identity, cacheRegions(regions)
	ends := cache.Boundaries(len(t.tokens), id.Grid)
	keys := cache.Keys(id.Producer, t.tokens, ends)
	var nodes []cache.Node
	args := func(i int) cache.StepArgs {
		a := cache.StepArgs{Identity: id, Job: benchJob, Key: keys[i], To: ends[i], Regions: regionsAt(whole, ends[i]), Probe: cacheProbe(probe), Keep: i == len(ends)-1}
		if i > 0 {
			a.Parent, a.From = keys[i-1], ends[i-1]
		}
		a.Tokens = t.tokens[a.From:a.To]
		return a
	}
	for i := range len(ends) - 1 {
		node, _, err := t.cells.PutStep(ctx, args(i))
		if err == nil {
			err = t.cells.DropRolling(ctx, benchJob, &node)
		}
		if err != nil {
			return err
		}
		nodes = append(nodes, node)
	}
	return t.timed(rowLast, func() error {
		last, err := t.cells.PutLast(ctx, args(len(ends)-1), nodes, t.handleIn(t.cells))
		if err == nil {
			err = t.cells.DropRolling(ctx, benchJob, &last.Node)
		}
		t.handle = cache.Sum(last.Handle.Encode())
		return err
	})
}

// regionsAt cuts the rows to those of the first tokens.
func regionsAt(regions []cache.Region, tokens int) []cache.Region {
	out := slices.Clone(regions)
	for i, r := range out {
		if r.Kind == cache.Rows {
			out[i].Data = r.Data[:r.Spec().Size(tokens)]
		}
	}
	return out
}

// settle waits until a disk has carried out what was asked of it: a file system does what follows a deletion with the next
// thing that is synced.
func settle(folder string) (err error) {
	f, err := os.CreateTemp(folder, "settle-")
	if err != nil {
		return err
	}
	_, err = f.Write([]byte{0})
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// restore brings the state back into a fresh sequence, from the handle on, and checks that it says what it said.
func (t *storedState) restore(ctx context.Context, want engine.Probe) (err error) {
	if err := settle(t.temp); err != nil {
		return err
	}
	start := time.Now()
	seq, err := t.model.engine.NewSequence(len(t.tokens))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seq.Close()) }()
	h, err := t.cells.Handle(ctx, t.handle)
	if err != nil {
		return err
	}
	m, err := t.cells.Manifest(ctx, h.Manifest)
	if err != nil {
		return err
	}
	r, err := seq.Restore(engine.Pos(m.Tokens))
	if err != nil {
		return err
	}
	if _, err := t.cells.Restore(ctx, m, "", nil, cacheRegions(r.Regions())); err != nil {
		r.Abort()
		return err
	}
	if err := r.Commit(ctx); err != nil {
		return err
	}
	t.took(rowRestore, time.Since(start).Seconds())
	live, err := seq.Probe(ctx)
	if err != nil {
		return err
	}
	t.took(rowResumed, time.Since(start).Seconds())
	if live.Next != want.Next {
		return fmt.Errorf("the restored state says token %d, it was %d", live.Next, want.Next)
	}
	return nil
}

// cacheRegions describes the engine's regions to the store. The data is shared, not copied.
func cacheRegions(regions []engine.Region) []cache.Region {
	out := make([]cache.Region, len(regions))
	for i, r := range regions {
		kind := cache.Fixed
		if r.Kind == engine.Rows {
			kind = cache.Rows
		}
		out[i] = cache.Region{Name: r.Name, DType: r.DType, Shape: r.Shape, Kind: kind, Lag: r.Lag, Data: r.Data, Loss: float32(r.Loss)}
	}
	return out
}

func cacheProbe(p engine.Probe) cache.Probe {
	out := cache.Probe{Next: p.Next, Draft: p.Draft}
	for _, top := range p.Top {
		out.Top = append(out.Top, cache.TopLogit(top))
	}
	return out
}
