package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"lector/engine"
)

// State is a copy of a sequence's state, to start several runs from.
type State struct {
	Pos     engine.Pos
	Regions []engine.Region
}

// SaveState copies the state of a sequence.
func SaveState(seq engine.Sequence) (State, error) {
	regions, err := seq.Regions()
	if err != nil {
		return State{}, err
	}
	s := State{Pos: seq.Pos(), Regions: regions}
	for i := range s.Regions {
		s.Regions[i].Data = bytes.Clone(s.Regions[i].Data)
	}
	return s, nil
}

// Start opens a sequence of a capacity that stands at the state.
func (s State) Start(ctx context.Context, e engine.Engine, capacity int) (engine.Sequence, error) {
	return start(ctx, e, s.Pos, capacity, func(i int, r engine.Region) error {
		if len(s.Regions[i].Data) != len(r.Data) {
			return fmt.Errorf("region %s has %d bytes, the copy %d", r.Name, len(r.Data), len(s.Regions[i].Data))
		}
		copy(r.Data, s.Regions[i].Data)
		return nil
	})
}

// start opens a sequence and restores what fill writes.
func start(ctx context.Context, e engine.Engine, pos engine.Pos, capacity int, fill func(i int, r engine.Region) error) (engine.Sequence, error) {
	seq, err := e.NewSequence(capacity)
	if err != nil {
		return nil, err
	}
	if err := restore(ctx, seq, pos, fill); err != nil {
		_ = seq.Close() // the restore's error says what is wrong
		return nil, err
	}
	return seq, nil
}

func restore(ctx context.Context, seq engine.Sequence, pos engine.Pos, fill func(i int, r engine.Region) error) error {
	r, err := seq.Restore(pos)
	if err != nil {
		return err
	}
	for i, region := range r.Regions() {
		if err := fill(i, region); err != nil {
			r.Abort()
			return err
		}
	}
	return r.Commit(ctx)
}

// Scales of made-up numbers: keys and values are of order one, as norms leave them; a recurrent state stays small.
const (
	rowScale   = 1
	fixedScale = 0.05
	smallHalf  = 0x2000 // about 1/128 as a half, next to nothing as a bfloat16
)

// SyntheticState makes up a state of pos tokens: every number is finite and drawn from the seed, every token is in the
// vocabulary. It costs what a real one costs to go on from, and says nothing: only times of such a run mean anything.
func SyntheticState(ctx context.Context, e engine.Engine, pos engine.Pos, seed uint64) (State, error) {
	src, vocabulary := newSource(seed), e.Info().Vocabulary
	seq, err := start(ctx, e, pos, int(pos), func(_ int, r engine.Region) error {
		for at := 0; at < len(r.Data); at += r.ValueBytes() {
			v := uint32(src.token(vocabulary))
			switch r.DType {
			case "f32":
				scale := float32(rowScale)
				if r.Kind == engine.Fixed {
					scale = fixedScale
				}
				v = math.Float32bits(scale * src.value())
			case "f16", "bf16":
				v = smallHalf | v&0x7f
			}
			copy(r.Data[at:], binary.LittleEndian.AppendUint32(nil, v)[:r.ValueBytes()])
		}
		return nil
	})
	if err != nil {
		return State{}, fmt.Errorf("make up a state of %d tokens: %w", pos, err)
	}
	s, err := SaveState(seq)
	if cerr := seq.Close(); err == nil {
		err = cerr
	}
	return s, err
}
