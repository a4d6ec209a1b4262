package enginetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"lector/engine"
)

// layout is the state's regions after pos tokens, with room for their data.
func layout(pos engine.Pos) []engine.Region {
	regions := []engine.Region{
		{Name: "tokens", DType: "i32", Shape: []int{1}, Kind: engine.Rows},
		{Name: "layers.0.k", DType: "f32", Shape: []int{4}, Kind: engine.Rows},
		{Name: "layers.0.v", DType: "f32", Shape: []int{2, 2}, Kind: engine.Rows},
		{Name: "mtp.k", DType: "f32", Shape: []int{2}, Kind: engine.Rows, Lag: 1},
		{Name: "layers.1.s", DType: "f32", Shape: []int{2, 4}, Kind: engine.Fixed},
		{Name: "digest", DType: "i32", Shape: []int{8}, Kind: engine.Fixed},
		{Name: "residual", DType: "f32", Shape: []int{8}, Kind: engine.Fixed},
	}
	for i := range regions {
		n := regions[i].RowBytes()
		if regions[i].Kind == engine.Rows {
			n *= regions[i].RowsAt(pos)
		}
		regions[i].Data = make([]byte, n)
	}
	return regions
}

// Regions implements engine.Sequence.
func (s *sequence) Regions() ([]engine.Region, error) {
	if err := s.usable(context.Background()); err != nil {
		return nil, fmt.Errorf("export regions: %w", err)
	}
	regions := layout(s.Pos())
	for i, rows := range s.rows {
		regions[i].Data = rows
	}
	for i, v := range s.core.decay {
		binary.LittleEndian.PutUint32(regions[4].Data[4*i:], math.Float32bits(v))
	}
	copy(regions[5].Data, s.core.digest[:])
	for i, v := range s.core.residual {
		binary.LittleEndian.PutUint32(regions[6].Data[4*i:], math.Float32bits(v))
	}
	return regions, nil
}

// Restore implements engine.Sequence.
func (s *sequence) Restore(pos engine.Pos) (engine.Restoration, error) {
	switch {
	case s.closed:
		return nil, fmt.Errorf("restore: %w", errClosed)
	case !s.broken && s.Pos() > 0:
		return nil, fmt.Errorf("restore into a sequence that holds %d tokens: %w", s.Pos(), engine.ErrState)
	case pos < 1:
		return nil, fmt.Errorf("restore %d tokens: %w", pos, engine.ErrState)
	case int(pos) > s.capacity:
		return nil, fmt.Errorf("restore %d tokens into a sequence of %d: %w", pos, s.capacity, engine.ErrTooLong)
	}
	s.reset()
	return &restoration{seq: s, pos: pos, regions: layout(pos)}, nil
}

// restoration is a state on its way into an empty sequence.
type restoration struct {
	seq     *sequence
	pos     engine.Pos
	regions []engine.Region
	over    bool
}

// Regions implements engine.Restoration.
func (r *restoration) Regions() []engine.Region { return r.regions }

// Abort implements engine.Restoration.
func (r *restoration) Abort() { r.over = true }

// Commit implements engine.Restoration. Beyond what every engine checks it works the state out again from the
// tokens and refuses the first region that differs, unless the toy is Lenient.
func (r *restoration) Commit(ctx context.Context) error {
	if r.over {
		return errors.New("commit a restoration that is over")
	}
	r.over = true
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	tokens, err := r.tokens()
	if err != nil {
		return err
	}
	if err := r.finite(); err != nil {
		return err
	}
	s := r.seq
	for _, id := range tokens {
		s.consume(id)
	}
	if s.toy.Lenient {
		r.adopt()
		return nil
	}
	want, err := s.Regions()
	if err != nil {
		return err
	}
	for i, w := range want {
		if !bytes.Equal(w.Data, r.regions[i].Data) {
			s.reset()
			return fmt.Errorf("restore region %s: not the state of these tokens: %w", w.Name, engine.ErrState)
		}
	}
	return nil
}

// tokens reads the token region; every id must be inside the vocabulary.
func (r *restoration) tokens() ([]engine.Token, error) {
	var out []engine.Token
	for i := range int(r.pos) {
		id := engine.Token(binary.LittleEndian.Uint32(r.regions[0].Data[4*i:]))
		if id < 0 || int(id) >= r.seq.toy.vocabulary() {
			return nil, fmt.Errorf("restore region %s: row %d holds %d: %w", r.regions[0].Name, i, id, engine.ErrToken)
		}
		out = append(out, id)
	}
	return out, nil
}

func (r *restoration) finite() error {
	for _, region := range r.regions {
		if region.DType != "f32" {
			continue
		}
		for i, v := range floats(region.Data) {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("restore region %s: element %d is %v: %w", region.Name, i, v, engine.ErrNumeric)
			}
		}
	}
	return nil
}

// adopt takes the regions as they are.
func (r *restoration) adopt() {
	s := r.seq
	for i := range s.rows {
		s.rows[i] = slices.Clone(r.regions[i].Data)
	}
	copy(s.core.decay[:], floats(r.regions[4].Data))
	copy(s.core.digest[:], r.regions[5].Data)
	copy(s.core.residual[:], floats(r.regions[6].Data))
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
