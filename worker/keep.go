package worker

import (
	"context"
	"fmt"
	"slices"

	"lector/cache"
	"lector/engine"
	"lector/queue"
)

// keeper stores the state that a resume extends, as nodes of the same chain that an ingest of all the ids would
// make: cells end at the multiples of the grid and at the end. A nil keeper keeps nothing.
type keeper struct {
	*resume
	nodes   []cache.Node // up to the last multiple of the grid that is stored
	pending *upload      // of the last of nodes, while it is on its way into the store
	made    *cache.Last  // what was stored with the last of nodes; nil: nothing
}

// newKeeper begins with the whole cells of what was restored. A last cell that ends between two multiples of the grid is not
// one of the extended document: its rows are stored again with those that follow.
func newKeeper(r *resume, m cache.Manifest) *keeper {
	k := &keeper{resume: r}
	var parent cache.Key
	for _, c := range m.Chunks {
		if c.To%r.identity.Grid != 0 {
			break
		}
		k.nodes = append(k.nodes, cache.Node{
			Version: cache.NodeVersion, Key: c.Key, Producer: r.identity.Producer, Parent: parent, From: c.From, To: c.To,
			Tokens: c.Tokens, Layout: m.Layout, Rows: c.Rows,
		})
		parent = c.Key
	}
	return k
}

// boundary stores the cell when the sequence stands at a multiple of the grid. Nothing but the node is wanted of it later:
// every attempt goes on from the handle. Where that holds token ids alone, one goes on from the state within them that was
// stored last, which is rolling.
func (k *keeper) boundary(ctx context.Context) error {
	if k == nil || int(k.seq.Pos())%k.identity.Grid != 0 {
		return nil
	}
	probe, err := k.seq.Probe(ctx)
	if err != nil {
		return fmt.Errorf("probe at %d: %w", k.seq.Pos(), err)
	}
	return k.put(ctx, probe, false)
}

// put stores the cell that ends where the sequence stands, in place of what was stored of it before.
func (k *keeper) put(ctx context.Context, probe engine.Probe, keep bool) error {
	tokens, grid := k.seq.Tokens(), k.identity.Grid
	ends := cache.Boundaries(len(tokens), grid)
	keys := cache.Keys(k.identity.Producer, tokens, ends)
	i := len(ends) - 1
	if len(k.nodes) < i {
		return fmt.Errorf("store state at %d: cell %d of %d was not stored: %w", len(tokens), len(k.nodes), i, engine.ErrState)
	}
	step := cache.StepArgs{Key: keys[i], To: ends[i], Probe: storedProbe(probe), Keep: keep, Named: !keep && !k.reread(ends[i])}
	if i > 0 {
		step.Parent, step.From = keys[i-1], ends[i-1]
	}
	step.Tokens = tokens[step.From:step.To]
	k.nodes = k.nodes[:i]
	return k.store(ctx, step)
}

// reread says that another attempt would go on from the state at a boundary, were it stored.
func (k *keeper) reread(end int) bool { return k.document != nil && end <= k.manifest.Tokens }

// store makes the cell durable. Where the space can stage it, the store takes it while the text goes on; behind the last
// one there is none.
func (k *keeper) store(ctx context.Context, step cache.StepArgs) error {
	if err := k.landed(ctx); err != nil {
		return err
	}
	if step.Keep { // the last one
		return k.lap(ctx, "store", &k.result.Timings.Store, func(ctx context.Context) error {
			last, err := k.putLast(ctx, k.seq, lastStep{step, k.nodes, k.order.TTL})
			if err != nil {
				return err
			}
			k.nodes, k.made = append(k.nodes, last.Node), &last
			return k.dropSuperseded(ctx, last.Node)
		})
	}
	if !k.Space.CanStage() {
		return k.lap(ctx, "store", &k.result.Timings.Store, func(ctx context.Context) error {
			node, _, err := k.putStep(ctx, k.seq, step)
			if err != nil {
				return err
			}
			k.nodes = append(k.nodes, node)
			return k.dropSuperseded(ctx, node)
		})
	}
	return k.lap(ctx, "stage", &k.result.Timings.Store, func(context.Context) error { // what it begins goes on after the lap
		step, err := k.export(k.seq, step)
		if err != nil {
			return err
		}
		staged, err := k.Space.Stage(ctx, step)
		if err != nil {
			return err
		}
		k.nodes = append(k.nodes, staged.Node)
		k.pending = k.upload(ctx, staged, aftermath{stored: k.dropSuperseded})
		return nil
	})
}

// landed waits until the cell before is in the store.
func (k *keeper) landed(ctx context.Context) error {
	if k == nil || k.pending == nil {
		return nil
	}
	u, t := k.pending, &k.result.Timings
	k.pending = nil
	return k.attempt.landed(ctx, u, storing{&t.Store, &t.Held, &t.Behind})
}

// dropSuperseded gives up the rolling state before that of a node which is stored now.
func (k *keeper) dropSuperseded(ctx context.Context, n cache.Node) error {
	if !k.reread(n.To) {
		return nil // it has none, and another attempt goes on from what there is
	}
	if err := k.Space.DropRolling(ctx, k.job.ID, &n); err != nil {
		return fmt.Errorf("drop superseded state: %w", err)
	}
	return nil
}

// keep stores the extended state and publishes a handle for it, when the order asks for one.
func (r *resume) keep(ctx context.Context) error {
	if !r.order.Keep {
		return nil
	}
	if r.order.KeepState == queue.KeepNone {
		return r.publish(ctx, kept{tokens: slices.Concat(r.seq.Tokens()[:r.base], r.result.IDs)})
	}
	if err := r.consumeRest(ctx); err != nil {
		return err
	}
	probe, err := r.seq.Probe(ctx)
	if err != nil {
		return fmt.Errorf("probe at %d: %w", r.seq.Pos(), err)
	}
	if err := r.keeper.put(ctx, probe, true); err != nil {
		return err
	}
	return r.publish(ctx, kept{nodes: r.keeper.nodes, made: r.keeper.made})
}

// dropRolling gives up what the job kept for another attempt, now that there is a result.
func (r *resume) dropRolling(ctx context.Context) error {
	if !r.order.Keep || r.order.KeepState == queue.KeepNone {
		return nil
	}
	return r.Space.DropRolling(ctx, r.job.ID, nil)
}

// publish makes the handle of the extended text.
func (r *resume) publish(ctx context.Context, k kept) error {
	var m cache.Manifest
	var h cache.Handle
	err := r.lap(ctx, "publish", &r.result.Timings.Store, func(ctx context.Context) (err error) {
		m, h, err = r.putHandle(ctx, k, r.order.TTL)
		return err
	})
	if err != nil {
		return err
	}
	d := cache.Sum(h.Encode())
	r.result.Handle, r.result.HandleDigest, r.result.StateBytes = cache.HandleName(d), d.String(), m.Bytes
	r.result.StoreSync = r.Config.StoreSync
	r.reached(h.Tokens)
	return nil
}

// consumeRest brings the sequence to the end of the text: its last token was chosen but not consumed.
func (r *resume) consumeRest(ctx context.Context) error {
	for want := r.base + len(r.result.IDs); int(r.seq.Pos()) != want; {
		i := int(r.seq.Pos()) - r.base
		if i < 0 || i >= len(r.result.IDs) {
			return fmt.Errorf("keep the state at %d: sequence is at %d: %w", want, r.seq.Pos(), engine.ErrState)
		}
		if _, err := r.seq.Decode(ctx, r.result.IDs[i:i+1], nil); err != nil { // what it would choose next is not asked
			return fmt.Errorf("decode at %d: %w", r.seq.Pos(), err)
		}
		if err := r.keeper.boundary(ctx); err != nil {
			return err
		}
	}
	return nil
}
