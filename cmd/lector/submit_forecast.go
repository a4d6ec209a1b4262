package main

import (
	"context"
	"fmt"
	"time"

	"lector/queue"
	"lector/worker"
)

// forecast is what reading a document will cost.
type forecast struct {
	Tokens     int     `json:"tokens"`
	StateBytes int64   `json:"state_bytes"`       // that its state takes in the store, at most: a known beginning is stored already
	Seconds    float64 `json:"seconds,omitempty"` // at the rate of the last document that was read; 0: none was

	ids int // tokens that are kept as ids alone
}

func (f *forecast) add(o forecast) {
	f.Tokens += o.Tokens
	f.StateBytes += o.StateBytes
	f.Seconds += o.Seconds
	f.ids += o.ids
}

func (f forecast) String() string {
	if f.ids == f.Tokens {
		return fmt.Sprintf("%d tokens, kept as ids alone in %s", f.Tokens, size(f.StateBytes))
	}
	text := fmt.Sprintf("%d tokens, a state of %s at most", f.Tokens, size(f.StateBytes))
	if f.Seconds == 0 {
		return text + ", time unknown: no document of this model was read yet"
	}
	return fmt.Sprintf("%s, about %v on one worker", text, time.Duration(f.Seconds*float64(time.Second)).Round(time.Second/10))
}

// forecast of a document of so many tokens.
func (s *submission) forecast(tokens int, keep keepState) forecast {
	if keep.none() { // nothing is computed
		return forecast{Tokens: tokens, StateBytes: idsBytes(tokens), ids: tokens}
	}
	info := s.model.engine.Info()
	f := forecast{Tokens: tokens, StateBytes: int64(info.FixedBytes) + int64(tokens)*int64(info.BytesPerToken)}
	if s.rate > 0 {
		f.Seconds = float64(tokens) / s.rate
	}
	return f
}

// lastRate is how many tokens a second were computed and stored for the last document of this model that was; 0 where
// there is none.
func (s *submission) lastRate(ctx context.Context) (float64, error) {
	rate, last := 0.0, time.Time{}
	heard := func(st queue.Status) bool {
		if st.State != queue.Done || st.Job.Kind != queue.Ingest || st.Job.Model != s.identity.Model.String() || !st.Updated.After(last) {
			return true
		}
		r, err := result[worker.Receipt](st)
		if busy := r.Seconds.Prefill + r.Seconds.Store; err == nil && r.Tokens.Computed > 0 && busy > 0 {
			rate, last = float64(r.Tokens.Computed)/busy, st.Updated
		}
		return true
	}
	err := s.atQueue(ctx, func() error { return s.queue.List(ctx, heard) })
	if err != nil {
		return 0, fmt.Errorf("look for the rate of earlier documents: %w", err)
	}
	return rate, nil
}
