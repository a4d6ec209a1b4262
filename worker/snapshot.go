package worker

import (
	"context"
	"errors"
	"fmt"
	"math"

	"lector/cache"
	"lector/engine"
)

// errProbe says that a restored state does not say what it said when it was stored.
var errProbe = errors.New("restored state differs from the stored one")

// identityOf names the loaded model for one tenant.
func identityOf(e engine.Engine, salt []byte) (cache.Identity, error) {
	id, err := e.Identity()
	if err != nil {
		return cache.Identity{}, fmt.Errorf("identify model: %w", err)
	}
	fields := make([]cache.Field, len(id.Fields))
	for i, f := range id.Fields {
		fields[i] = cache.Field(f)
	}
	return cache.NewIdentity(fields, id.Class, id.Grid, salt), nil
}

// storedRegions describes the engine's regions to the cache. The data is shared, not copied.
func storedRegions(regions []engine.Region) []cache.Region {
	out := make([]cache.Region, len(regions))
	for i, r := range regions {
		out[i] = cache.Region{Name: r.Name, DType: r.DType, Shape: r.Shape, Kind: storedKind(r.Kind), Lag: r.Lag, Data: r.Data, Loss: float32(r.Loss)}
	}
	return out
}

func storedKind(k engine.Kind) cache.Kind {
	if k == engine.Rows {
		return cache.Rows
	}
	return cache.Fixed
}

func storedProbe(p engine.Probe) cache.Probe {
	out := cache.Probe{Next: p.Next, Draft: p.Draft}
	for _, t := range p.Top {
		out.Top = append(out.Top, cache.TopLogit(t))
	}
	return out
}

// restoreArgs says which state goes where.
type restoreArgs struct {
	space    *cache.Space
	manifest cache.Manifest
	job      string  // whose rolling state may be read; "": kept state alone
	tokens   []int32 // compared with the stored ones; nil: not known
	bounded  bool    // another class made the state
}

// restore fills an empty sequence and checks that it lives. On an error the sequence is empty; engine and cache
// both say how many tokens were to be restored.
func restore(ctx context.Context, seq engine.Sequence, a restoreArgs) (bytes int64, err error) {
	r, err := seq.Restore(engine.Pos(a.manifest.Tokens))
	if err != nil {
		return 0, err
	}
	bytes, err = a.space.Restore(ctx, a.manifest, a.job, a.tokens, storedRegions(r.Regions()))
	if err != nil {
		r.Abort()
		return bytes, err
	}
	if err := r.Commit(ctx); err != nil {
		return bytes, err
	}
	live, err := seq.Probe(ctx)
	if err != nil {
		return bytes, fmt.Errorf("probe the restored state: %w", err)
	}
	if a.bounded {
		return bytes, nearProbe(a.manifest.Probe, storedProbe(live))
	}
	return bytes, compareProbe(a.manifest.Probe, storedProbe(live))
}

// probeBound is how far a logit may be off where another class computed it, times max(1, its size): half staging
// costs 1.4e-3 of it, a flipped choice up to 2e-2.
const probeBound = 2e-2

// nearProbe wants logits within the bound, and the same next token unless two were that close. The draft may
// differ: it changes the speed alone.
func nearProbe(stored, live cache.Probe) error {
	now := map[int32]float32{}
	for _, t := range live.Top {
		now[t.ID] = t.Logit
	}
	for i, s := range stored.Top {
		bound := probeBound * max(1, math.Abs(float64(s.Logit)))
		l, kept := now[s.ID]
		if !kept && len(live.Top) > 0 { // it fell below the last that is kept
			l = live.Top[len(live.Top)-1].Logit
		}
		off := math.Abs(float64(l) - float64(s.Logit))
		if kept && off > bound || !kept && float64(s.Logit)-float64(l) > bound {
			return fmt.Errorf("logit of token %d was %v and is %v, more than %.2g apart: %w", s.ID, s.Logit, l, bound, errProbe)
		}
		if i == 0 && stored.Next != live.Next && float64(s.Logit)-float64(now[live.Next]) > 2*bound {
			return fmt.Errorf("next token was %d and is %d, and it was not close: %w", stored.Next, live.Next, errProbe)
		}
	}
	return nil
}

// compareProbe wants the same bits.
func compareProbe(stored, live cache.Probe) error {
	switch {
	case stored.Next != live.Next:
		return fmt.Errorf("next token was %d and is %d: %w", stored.Next, live.Next, errProbe)
	case stored.Draft != live.Draft:
		return fmt.Errorf("draft was %d and is %d: %w", stored.Draft, live.Draft, errProbe)
	case len(stored.Top) != len(live.Top):
		return fmt.Errorf("%d top logits were stored and %d are there: %w", len(stored.Top), len(live.Top), errProbe)
	}
	for i, s := range stored.Top {
		if l := live.Top[i]; l != s {
			return fmt.Errorf("logit %d was %v of token %d and is %v of token %d: %w", i, s.Logit, s.ID, l.Logit, l.ID, errProbe)
		}
	}
	return nil
}
