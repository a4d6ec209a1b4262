package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lector/engine"
	"lector/engine/weights"
)

// Runner measures one engine.
type Runner struct {
	Engine engine.Engine
	Config *weights.Config
	Stored Stored
	Seed   uint64
	Text   []engine.Token // what to read; nil: random tokens
	Repeat int            // samples of every setting
	Note   func(format string, args ...any)
	// Begin is called when the settings hold and states are made, before the first sample; nil: nothing to do.
	Begin func(ctx context.Context) error
}

// Tokens returns the first n tokens of what is read.
func (r *Runner) Tokens(n int) ([]engine.Token, error) {
	if r.Text == nil {
		return RandomTokens(r.Seed, n, r.Engine.Info().Vocabulary), nil
	}
	if n > len(r.Text) {
		return nil, fmt.Errorf("the text has %d tokens, and %d are to be read: %w", len(r.Text), n, engine.ErrTooLong)
	}
	return r.Text[:n], nil
}

// warmTokens is what is read once before the first sample: enough to touch nearly every expert.
const warmTokens = 256

// Warm reads a little, so that weights are in memory and scratch is made.
func (r *Runner) Warm(ctx context.Context) error {
	info := r.Engine.Info()
	tokens := RandomTokens(r.Seed, min(warmTokens, info.MaxChunk, info.MaxTokens), info.Vocabulary)
	_, err := r.Read(ctx, tokens, ReadOptions{Chunk: len(tokens)})
	return err
}

// Reading is one prefill of a whole text.
type Reading struct {
	Seconds float64
	Stats   engine.ChunkStats
	Last    engine.Step
}

// ReadOptions are the settings of Read.
type ReadOptions struct {
	Chunk int                         // tokens of a chunk
	Room  int                         // tokens that fit behind what is read
	Then  func(engine.Sequence) error // what to do before the sequence is closed; may be nil
}

// Read prefills tokens in chunks into a fresh sequence. Seconds are those of the chunks alone.
func (r *Runner) Read(ctx context.Context, tokens []engine.Token, o ReadOptions) (_ Reading, err error) {
	seq, err := r.Engine.NewSequence(len(tokens) + o.Room)
	if err != nil {
		return Reading{}, err
	}
	defer func() { err = errors.Join(err, seq.Close()) }()
	var got Reading
	start := time.Now()
	for from := 0; from < len(tokens); from += o.Chunk {
		if got.Last, err = seq.Prefill(ctx, tokens[from:min(from+o.Chunk, len(tokens))], nil); err != nil {
			return got, err
		}
		got.Stats = got.Stats.Add(got.Last.Stats)
	}
	got.Seconds = time.Since(start).Seconds()
	if o.Then != nil {
		err = o.Then(seq)
	}
	return got, err
}

// setting is one row in the making.
type setting struct {
	row    Row
	sample func(ctx context.Context, row *Row) error
	after  func(ctx context.Context, row *Row) error // of the last sample; nil: nothing to do
}

// run takes one sample of every setting, then the next of every setting.
func (r *Runner) run(ctx context.Context, settings []setting) ([]Row, error) {
	if r.Begin != nil {
		if err := r.Begin(ctx); err != nil {
			return nil, err
		}
	}
	for i := range max(1, r.Repeat) {
		for k := range settings {
			s := &settings[k]
			if err := s.sample(ctx, &s.row); err != nil {
				return nil, fmt.Errorf("measure %s: %w", s.row.Name, err)
			}
			r.Note("%s: %.4g %s (%d of %d)", s.row.Name, s.row.Samples[i], s.row.Unit, i+1, max(1, r.Repeat))
		}
	}
	rows := make([]Row, len(settings))
	for i, s := range settings {
		if s.after != nil {
			if err := s.after(ctx, &s.row); err != nil {
				return nil, fmt.Errorf("profile %s: %w", s.row.Name, err)
			}
		}
		rows[i] = s.row
	}
	return rows, nil
}

// Prefill reads texts of several lengths in chunks of several sizes.
func (r *Runner) Prefill(ctx context.Context, lengths, chunks []int) ([]Row, error) {
	var settings []setting
	seen := map[string]bool{}
	for _, length := range lengths {
		tokens, err := r.fits(length)
		if err != nil {
			return nil, err
		}
		for _, asked := range chunks {
			chunk := min(asked, length)
			if err := r.chunkFits(chunk); err != nil {
				return nil, err
			}
			row := Row{
				Name: fmt.Sprintf("prefill length=%d chunk=%d", length, chunk), Unit: TokensPerSecond,
				Length: length, Chunk: chunk, Series: fmt.Sprintf("chunk %d", asked),
			}
			if seen[row.Name] {
				continue
			}
			seen[row.Name] = true
			for from := 0; from < length; from += chunk {
				row.FLOP = row.FLOP.Add(ChunkFLOP(r.Config, from, min(chunk, length-from)))
			}
			settings = append(settings, setting{row: row, sample: func(ctx context.Context, row *Row) error {
				got, err := r.Read(ctx, tokens, ReadOptions{Chunk: chunk})
				row.Samples = append(row.Samples, float64(length)/got.Seconds)
				row.Stats = append(row.Stats, got.Stats)
				return err
			}})
		}
	}
	return r.run(ctx, settings)
}

// fits refuses a length that the model or the text has not.
func (r *Runner) fits(length int) ([]engine.Token, error) {
	if limit := r.Engine.Info().MaxTokens; length < 1 || length > limit {
		return nil, fmt.Errorf("length of %d tokens: %w: the model takes 1 to %d", length, engine.ErrTooLong, limit)
	}
	return r.Tokens(length)
}

func (r *Runner) chunkFits(chunk int) error {
	if limit := r.Engine.Info().MaxChunk; chunk < 1 || chunk > limit {
		return fmt.Errorf("chunk of %d tokens: %w: 1 to %d fit at once", chunk, engine.ErrTooLong, limit)
	}
	return nil
}

// StateOptions say how the state at a position is made.
type StateOptions struct {
	Chunk     int  // tokens of a chunk on the way there
	Synthetic bool // made up instead (SyntheticState)
}

// stateAt makes the state at a position; 0 is none.
func (r *Runner) stateAt(ctx context.Context, pos int, o StateOptions) (s State, err error) {
	if pos == 0 {
		return State{}, nil
	}
	if o.Synthetic {
		return SyntheticState(ctx, r.Engine, engine.Pos(pos), r.Seed)
	}
	r.Note("reading %d tokens to get there", pos)
	tokens, err := r.Tokens(pos)
	if err != nil {
		return s, err
	}
	_, err = r.Read(ctx, tokens, ReadOptions{Chunk: min(o.Chunk, pos), Then: func(seq engine.Sequence) error {
		s, err = SaveState(seq)
		return err
	}})
	return s, err
}

// from opens a sequence at a state with room behind it.
func (r *Runner) from(ctx context.Context, s State, room int) (engine.Sequence, error) {
	if s.Pos == 0 {
		return r.Engine.NewSequence(room)
	}
	return s.Start(ctx, r.Engine, int(s.Pos)+room)
}

// At measures one chunk at each of several positions: what a token costs there.
func (r *Runner) At(ctx context.Context, positions []int, o StateOptions) ([]Row, error) {
	if err := r.chunkFits(o.Chunk); err != nil {
		return nil, err
	}
	for _, pos := range positions {
		if _, err := r.fits(pos + o.Chunk); err != nil {
			return nil, err
		}
	}
	var settings []setting
	for _, pos := range positions {
		state, err := r.stateAt(ctx, pos, o)
		if err != nil {
			return nil, err
		}
		tokens, err := r.Tokens(pos + o.Chunk)
		if err != nil {
			return nil, err
		}
		settings = append(settings, setting{
			row: Row{
				Name: fmt.Sprintf("prefill at=%d chunk=%d", pos, o.Chunk), Unit: TokensPerSecond,
				Length: o.Chunk, Chunk: o.Chunk, Position: pos, FLOP: ChunkFLOP(r.Config, pos, o.Chunk),
				Series: fmt.Sprintf("chunk %d", o.Chunk),
			},
			sample: func(ctx context.Context, row *Row) error { return r.chunkAt(ctx, state, tokens[pos:], row) },
		})
	}
	return r.run(ctx, settings)
}

func (r *Runner) chunkAt(ctx context.Context, s State, tokens []engine.Token, row *Row) (err error) {
	seq, err := r.from(ctx, s, len(tokens))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seq.Close()) }()
	start := time.Now()
	step, err := seq.Prefill(ctx, tokens, nil)
	row.Samples = append(row.Samples, float64(len(tokens))/time.Since(start).Seconds())
	row.Stats = append(row.Stats, step.Stats)
	return err
}
