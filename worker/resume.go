package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lector/cache"
	"lector/engine"
	"lector/queue"
)

// resume is one text on its way from a handle to a result.
type resume struct {
	*attempt
	order    *queue.ResumeOrder
	sampler  sampler
	manifest cache.Manifest
	prompt   []int32
	seq      engine.Sequence
	base     int // tokens before the generated text
	limit    int // most tokens that are generated
	keeper   *keeper
	result   Result
}

// resume goes on from a handle and tells the text as it comes.
func (a *attempt) resume(ctx context.Context) (_ Result, err error) {
	r := &resume{attempt: a, order: a.job.Resume}
	if found, err := r.stored(ctx); err != nil || found {
		return r.result, err
	}
	if err := r.open(ctx); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.seq.Close()) }()
	if err := r.lap(ctx, "restore", &r.result.Timings.Restore, r.restore); err != nil {
		return Result{}, err
	}
	told := queue.Event{Type: queue.EventRestored, Tokens: r.manifest.Tokens, Total: len(r.prompt)}
	if err := r.tell(ctx, told); err != nil {
		return Result{}, err
	}
	if err := r.lap(ctx, "prefill", &r.result.Timings.Prefill, r.read); err != nil {
		return Result{}, err
	}
	if err := r.branches(ctx); err != nil {
		return Result{}, err
	}
	if err := r.keep(ctx); err != nil {
		return Result{}, err
	}
	r.result.Seed, r.result.Host, r.result.Attempt = r.order.Sampling.Seed, r.Host, r.delivery.Attempt()
	r.result.Timings.close(r.now().Sub(r.started))
	return r.result, r.store(ctx)
}

// open checks everything that can be checked before a byte of state is read.
func (r *resume) open(ctx context.Context) error {
	info := r.Engine.Info()
	vocabulary := info.Vocabulary
	if v := r.config.Vocabulary; v > 0 {
		vocabulary = min(vocabulary, v)
	}
	var err error
	if r.sampler, err = newSampler(r.order.Sampling, vocabulary); err != nil {
		return err
	}
	if slices.Contains(r.order.Stop, "") {
		return fmt.Errorf("stop string is empty: %w", ErrInput)
	}
	if err := r.lookUp(ctx); err != nil {
		return err
	}
	if r.prompt, err = r.encode(); err != nil {
		return err
	}
	for i, id := range r.prompt {
		if id < 0 || int(id) >= info.Vocabulary {
			return fmt.Errorf("token %d of the prompt is %d, vocabulary of %d: %w", i, id, info.Vocabulary, engine.ErrToken)
		}
	}
	capacity := r.capacity(r.order.Capacity)
	r.base = r.manifest.Tokens + len(r.prompt)
	if r.base > capacity {
		return fmt.Errorf("%d tokens of the handle and %d of the prompt, capacity of %d: %w", r.manifest.Tokens, len(r.prompt), capacity, engine.ErrTooLong)
	}
	r.limit = min(r.order.MaxTokens, capacity-r.base)
	if r.lent != nil {
		r.lent.marks = r.order.Branches > 1
	}
	r.seq, err = r.Engine.NewSequence(r.base + r.limit)
	return err
}

// lookUp reads the handle and what it names, and checks that this model may restore it.
func (r *resume) lookUp(ctx context.Context) error {
	digest, err := cache.ParseDigest(r.order.Handle)
	if err != nil {
		return fmt.Errorf("order names the handle: %w: %w", ErrInput, err)
	}
	h, err := r.Space.Handle(ctx, digest)
	if err != nil {
		return err
	}
	if err := h.Valid(r.now()); err != nil {
		return err
	}
	if r.manifest, err = r.Space.Manifest(ctx, h.Manifest); err != nil {
		return err
	}
	if err := r.identity.CompatibleSalted(r.manifest.Identity, r.OldSalts); err != nil {
		return fmt.Errorf("handle %s: %w", cache.HandleName(digest), err)
	}
	if r.manifest.Tokens != h.Tokens {
		return fmt.Errorf("handle %s says %d tokens, its manifest %d: %w", cache.HandleName(digest), h.Tokens, r.manifest.Tokens, cache.ErrCorrupt)
	}
	if r.order.Keep && r.identity.Model != r.manifest.Identity.Model {
		return fmt.Errorf("keep the extended state: the handle's state was stored under an older salt or seal key: store it anew with lector snapshot reseal, then resume that handle: %w", cache.ErrIncompatible)
	}
	if r.order.Keep && r.identity.Producer != r.manifest.Identity.Producer {
		return fmt.Errorf("keep the extended state: the handle's state is of class %s on a grid of %d, this engine's of %s on %d: %w",
			r.manifest.Identity.Class, r.manifest.Identity.Grid, r.identity.Class, r.identity.Grid, cache.ErrIncompatible)
	}
	return nil
}

// encode is the prompt's ids. They follow the document's as they are: the two are encoded apart.
func (r *resume) encode() (ids []int32, err error) {
	switch o := r.order; {
	case o.Text != "":
		ids, err = r.Tokenizer.Encode(o.Text)
	case len(o.Chat) > 0:
		messages := make([]engine.Message, len(o.Chat))
		for i, m := range o.Chat {
			messages[i] = engine.Message(m)
		}
		ids, err = r.Tokenizer.Chat(messages, o.Thinking)
	default:
		ids = o.Tokens
	}
	if err != nil {
		return nil, fmt.Errorf("encode prompt: %w: %w", ErrInput, err)
	}
	return ids, nil
}

// restore fills the sequence with the handle's state.
func (r *resume) restore(ctx context.Context) error {
	r.drawn(ctx, 0, r.manifest.Tokens)
	bounded := cache.Agree(r.manifest.Identity.Class, r.identity.Class) != cache.Exact
	err := r.metered(r.manifest.Tokens, func() (int64, error) {
		return restore(ctx, r.seq, restoreArgs{space: r.Space, manifest: r.manifest, bounded: bounded})
	})
	if err != nil {
		return err
	}
	r.reached(r.manifest.Tokens)
	r.result.Usage.Restored = r.manifest.Tokens
	if r.order.Keep {
		r.keeper = newKeeper(r)
	}
	return nil
}

// read prefills the prompt, in chunks that end where a state may be taken.
func (r *resume) read(ctx context.Context) error {
	from := r.manifest.Tokens
	r.drawn(ctx, from, r.base)
	for _, to := range cuts(from, r.base, r.identity.Grid, r.Engine.Info().MaxChunk) {
		if err := r.drained(); err != nil {
			return err
		}
		chunk := r.prompt[from-r.manifest.Tokens : to-r.manifest.Tokens]
		step, err := r.seq.Prefill(ctx, chunk, nil)
		if err != nil {
			return fmt.Errorf("read prompt at %d: %w", from, err)
		}
		r.meter().Computed(queue.Resume, step.Stats)
		r.result.Usage.Prefilled += len(chunk)
		if err := r.keeper.boundary(ctx); err != nil {
			return err
		}
		from = to
	}
	return nil
}
