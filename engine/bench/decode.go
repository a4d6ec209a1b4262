package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lector/engine"
	"lector/engine/ops"
)

// DecodeOptions are the settings of Decode.
type DecodeOptions struct {
	Positions, Drafts []int
	Tokens            int          // to generate, greedily
	Profiler          ops.Profiler // to count one more sample with; nil: none is taken
	Threads           int          // of the profiler's backend
	StateOptions
}

// Decode generates tokens from the states at several positions with several numbers of drafts.
func (r *Runner) Decode(ctx context.Context, o DecodeOptions) ([]Row, error) {
	if err := r.checkDecode(o); err != nil {
		return nil, err
	}
	var settings []setting
	for _, pos := range o.Positions {
		state, err := r.stateAt(ctx, pos, o.StateOptions)
		if err != nil {
			return nil, err
		}
		for _, drafts := range o.Drafts {
			s := setting{
				row: Row{
					Name: fmt.Sprintf("decode at=%d drafts=%d", pos, drafts), Unit: TokensPerSecond,
					Length: o.Tokens, Position: pos, Drafts: drafts, Series: fmt.Sprintf("%d drafts", drafts),
				},
				sample: func(ctx context.Context, row *Row) error { return r.decodeFrom(ctx, state, o.Tokens, row, nil) },
			}
			if o.Profiler != nil {
				s.after = func(ctx context.Context, row *Row) error { return r.profileDecode(ctx, state, o, row) }
			}
			settings = append(settings, s)
		}
	}
	return r.run(ctx, settings)
}

func (r *Runner) checkDecode(o DecodeOptions) error {
	info := r.Engine.Info()
	for _, pos := range o.Positions {
		if _, err := r.fits(pos + o.Tokens + engine.MaxDrafts + 1); err != nil {
			return err
		}
		if pos < 1 {
			return fmt.Errorf("decode at %d: %w: there is nothing to go on from", pos, engine.ErrEmpty)
		}
	}
	for _, n := range o.Drafts {
		if n < 0 || n > engine.MaxDrafts {
			return fmt.Errorf("%d drafts: 0 to %d are possible", n, engine.MaxDrafts)
		}
	}
	if slices.Max(o.Drafts) > 0 && !info.DraftHead {
		return fmt.Errorf("drafts of model %s: %w", info.Name, engine.ErrNoHead)
	}
	if o.Tokens < 1 {
		return fmt.Errorf("%d tokens to generate: at least 1", o.Tokens)
	}
	return r.chunkFits(min(o.Chunk, slices.Max(o.Positions)))
}

// decodeFrom generates at least n tokens and counts what each step had to read. A profiler, where there is one, counts from the first step on.
func (r *Runner) decodeFrom(ctx context.Context, s State, n int, row *Row, p ops.Profiler) (err error) {
	seq, err := r.from(ctx, s, n+engine.MaxDrafts+1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seq.Close()) }()
	probe, err := seq.Probe(ctx)
	if err != nil {
		return err
	}
	next, done, reads := probe.Next, 0, Reads{}
	var stats engine.ChunkStats
	if p != nil {
		p.Profile()
	}
	start := time.Now()
	for done < n {
		reads = reads.Add(StepReads(r.Config, r.Stored, int(seq.Pos()), row.Drafts))
		out, err := step(ctx, seq, next, row.Drafts)
		if err != nil {
			return err
		}
		next = out.Chosen[len(out.Chosen)-1]
		done += len(out.Chosen)
		stats = stats.Add(out.Stats)
		row.Steps++
		row.Drafted += row.Drafts
		row.Accepted += len(out.Chosen) - 1
	}
	seconds := time.Since(start).Seconds()
	row.Samples = append(row.Samples, float64(done)/seconds)
	row.Stats = append(row.Stats, stats)
	row.Reads = row.Reads.Add(reads)
	row.Spent += seconds
	row.Committed += done
	return nil
}

// step decodes a token with n drafts behind it.
func step(ctx context.Context, seq engine.Sequence, next engine.Token, n int) (engine.Decoded, error) {
	batch := []engine.Token{next}
	if n > 0 {
		drafts, err := seq.Draft(ctx, next, n)
		if err != nil {
			return engine.Decoded{}, err
		}
		batch = append(batch, drafts...)
	}
	return seq.Decode(ctx, batch, nil)
}
