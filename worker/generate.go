package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lector/engine"
	"lector/queue"
)

// generate chooses tokens until the text ends. The first comes from the residual that the last token left, so
// that an empty prompt goes on from the document's end.
func (r *resume) generate(ctx context.Context) error {
	r.result.IDs = []int32{}
	if r.limit == 0 {
		r.result.FinishReason = FinishCapacity
		return nil
	}
	logits, err := r.seq.Logits(ctx)
	if err != nil {
		return fmt.Errorf("logits at %d: %w", r.seq.Pos(), err)
	}
	chosen := []engine.Token{r.sampler.choose(r.seq.Pos(), logits)}
	r.result.Timings.FirstToken = r.now().Sub(r.started).Seconds()
	return r.lap(&r.result.Timings.Decode, func() error {
		for {
			if err := r.take(ctx, chosen); err != nil || r.result.FinishReason != "" {
				return err
			}
			if err := r.drained(); err != nil {
				return err
			}
			if chosen, err = r.decode(ctx); err != nil {
				return err
			}
		}
	})
}

// decode consumes the last chosen token and as many drafts as come true.
func (r *resume) decode(ctx context.Context) ([]engine.Token, error) {
	last := r.result.IDs[len(r.result.IDs)-1]
	batch := []engine.Token{last}
	if n := r.drafts(); n > 0 {
		more, err := r.seq.Draft(ctx, last, n)
		if err != nil {
			return nil, fmt.Errorf("draft at %d: %w", r.seq.Pos(), err)
		}
		batch = append(batch, r.beforeStop(more)...)
	}
	out, err := r.seq.Decode(ctx, batch, r.sampler.choose)
	if err != nil {
		return nil, fmt.Errorf("decode at %d: %w", r.seq.Pos(), err)
	}
	r.meter().Computed(queue.Resume, out.Stats)
	r.result.Usage.Drafted += len(batch) - 1
	r.result.Usage.Accepted += len(out.Chosen) - 1
	return out.Chosen, r.keeper.boundary(ctx)
}

// drafts is how many drafts the next step may consume: no more than tokens are wanted, and none across a place
// where the state is to be taken.
func (r *resume) drafts() int {
	if !r.Engine.Info().DraftHead {
		return 0
	}
	n := min(r.order.Drafts, engine.MaxDrafts, r.limit-len(r.result.IDs)-1)
	if r.order.Keep {
		grid := r.identity.Grid
		n = min(n, grid-int(r.seq.Pos())%grid-1)
		if len(r.order.Stop) > 0 {
			n = 0 // a stop string may end the text at any token, and the state must end there too
		}
	}
	return n
}

// beforeStop drops a drafted stop id and what follows it: a stop id ends the text and is never consumed.
func (r *resume) beforeStop(drafts []engine.Token) []engine.Token {
	for i, id := range drafts {
		if slices.Contains(r.Engine.Info().Stops, id) {
			return drafts[:i]
		}
	}
	return drafts
}

// take adds chosen tokens to the text until one of them ends it, and tells what is new and certain.
func (r *resume) take(ctx context.Context, chosen []engine.Token) error {
	first := len(r.result.IDs)
	var text strings.Builder
	for _, id := range chosen {
		if slices.Contains(r.Engine.Info().Stops, id) {
			r.result.FinishReason = FinishStop
			break
		}
		r.result.IDs = append(r.result.IDs, id)
		piece, stopped := r.stops.add(r.decoder.Add(id))
		text.WriteString(piece)
		if stopped {
			r.result.FinishReason = FinishStop
			break
		}
		if r.result.FinishReason = r.full(); r.result.FinishReason != "" {
			break
		}
	}
	if r.result.FinishReason != "" {
		r.flush(&text)
	}
	r.result.Text += text.String()
	r.result.Usage.Generated = len(r.result.IDs)
	if len(r.result.IDs) == first && text.Len() == 0 {
		return nil
	}
	return r.tell(ctx, queue.Event{Type: queue.EventTokens, First: first, IDs: r.result.IDs[first:], Text: text.String()})
}

// full is why no token may follow, or "".
func (r *resume) full() string {
	switch {
	case len(r.result.IDs) < r.limit:
		return ""
	case r.limit == r.order.MaxTokens:
		return FinishLength
	}
	return FinishCapacity
}

// flush adds what was held back: half a character, and what might have become a stop string. After a stop string
// there is nothing.
func (r *resume) flush(text *strings.Builder) {
	if r.stops.done {
		return
	}
	piece, _ := r.stops.add(r.decoder.Flush())
	text.WriteString(piece)
	text.WriteString(r.stops.rest())
}
