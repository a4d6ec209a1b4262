package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lector/engine"
	"lector/queue"
)

// branch is one text that follows what its resume has read.
type branch struct {
	*resume
	sampler sampler
	decoder engine.Decoder
	stops   stopText
	out     Branch
}

func (r *resume) newBranch(index int) *branch {
	b := &branch{resume: r, sampler: r.sampler, decoder: r.Tokenizer.Decoder(), stops: stopText{stops: r.order.Stop}}
	b.sampler.branch = uint32(index)
	b.out = Branch{Index: index, IDs: []int32{}}
	return b
}

// generate chooses tokens until the text ends. The first comes from the residual that the last token left, so
// that an empty prompt goes on from the document's end.
func (b *branch) generate(ctx context.Context) error {
	if b.limit == 0 {
		b.out.FinishReason = FinishCapacity
		return b.take(ctx, nil)
	}
	logits, err := b.seq.Logits(ctx)
	if err != nil {
		return fmt.Errorf("logits at %d: %w", b.seq.Pos(), err)
	}
	chosen := []engine.Token{b.sampler.choose(b.seq.Pos(), logits)}
	if b.out.Index == 0 {
		b.result.Timings.FirstToken = b.now().Sub(b.started).Seconds()
	}
	return b.computing(ctx, "decode", &b.result.Timings.Decode, func(ctx context.Context) error {
		from := int(b.seq.Pos())
		defer func() { b.drawn(ctx, from, int(b.seq.Pos())) }()
		for {
			if err := b.take(ctx, chosen); err != nil || b.out.FinishReason != "" {
				return err
			}
			if err := b.drained(); err != nil {
				return err
			}
			if chosen, err = b.decode(ctx); err != nil {
				return err
			}
		}
	})
}

// decode consumes the last chosen token and as many drafts as come true.
func (b *branch) decode(ctx context.Context) (chosen []engine.Token, err error) {
	err = whole(ctx, b.seq, func() error {
		last := b.out.IDs[len(b.out.IDs)-1]
		batch := []engine.Token{last}
		if n := b.drafts(); n > 0 {
			more, err := b.seq.Draft(ctx, last, n)
			if err != nil {
				return fmt.Errorf("draft at %d: %w", b.seq.Pos(), err)
			}
			batch = append(batch, b.beforeStop(more)...)
		}
		out, err := b.seq.Decode(ctx, batch, b.sampler.chooser(b.Engine.Info().Vocabulary))
		if err != nil {
			return fmt.Errorf("decode at %d: %w", b.seq.Pos(), err)
		}
		b.meter().Computed(queue.Resume, out.Stats)
		b.out.Usage.Drafted += len(batch) - 1
		b.out.Usage.Accepted += len(out.Chosen) - 1
		chosen = out.Chosen
		return nil
	})
	if err != nil {
		return nil, err
	}
	return chosen, b.keeper.boundary(ctx)
}

// drafts is how many drafts the next step may consume: no more than tokens are wanted, and none across a place
// where the state is to be taken.
func (b *branch) drafts() int {
	if !b.Engine.Info().DraftHead {
		return 0
	}
	n := min(b.order.Drafts, engine.MaxDrafts, b.limit-len(b.out.IDs)-1)
	if b.keeper != nil {
		grid := b.identity.Grid
		n = min(n, grid-int(b.seq.Pos())%grid-1)
		if len(b.order.Stop) > 0 {
			n = 0 // a stop string may end the text at any token, and the state must end there too
		}
	}
	return n
}

// beforeStop drops a drafted stop id and what follows it: a stop id ends the text and is never consumed.
func (b *branch) beforeStop(drafts []engine.Token) []engine.Token {
	for i, id := range drafts {
		if slices.Contains(b.Engine.Info().Stops, id) {
			return drafts[:i]
		}
	}
	return drafts
}

// take adds chosen tokens to the text until one of them ends it, and tells what is new and certain.
func (b *branch) take(ctx context.Context, chosen []engine.Token) error {
	first, offset := len(b.out.IDs), len(b.out.Text)
	var text strings.Builder
	for _, id := range chosen {
		if slices.Contains(b.Engine.Info().Stops, id) {
			b.out.FinishReason = FinishStop
			break
		}
		b.out.IDs = append(b.out.IDs, id)
		piece, stopped := b.stops.add(b.decoder.Add(id))
		text.WriteString(piece)
		if stopped {
			b.out.FinishReason = FinishStop
			break
		}
		if b.out.FinishReason = b.full(); b.out.FinishReason != "" {
			break
		}
	}
	if b.out.FinishReason != "" {
		b.flush(&text)
	}
	b.out.Text += text.String()
	b.out.Usage.Generated = len(b.out.IDs)
	return b.tell(ctx, queue.Event{
		Type: queue.EventTokens, Branch: b.out.Index, First: first, IDs: b.out.IDs[first:],
		Offset: offset, Text: text.String(), Finish: b.out.FinishReason,
	})
}

// full is why no token may follow, or "".
func (b *branch) full() string {
	switch {
	case len(b.out.IDs) < b.limit:
		return ""
	case b.limit == b.order.MaxTokens:
		return FinishLength
	}
	return FinishCapacity
}

// flush adds what was held back: half a character, and what might have become a stop string. After a stop string
// there is nothing.
func (b *branch) flush(text *strings.Builder) {
	if b.stops.done {
		return
	}
	piece, _ := b.stops.add(b.decoder.Flush())
	text.WriteString(piece)
	text.WriteString(b.stops.rest())
}
