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
	document []int32 // ids of a handle that holds those alone
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
	if found, err := r.stored(ctx); err != nil {
		return r.result, err
	} else if found {
		return r.result, r.dropRolling(ctx)
	}
	if err := r.open(ctx); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, r.keeper.landed(ctx), r.seq.Close()) }()
	if err := r.lap(ctx, "restore", &r.result.Timings.Restore, r.restore); err != nil {
		return Result{}, err
	}
	restored := r.result.Usage.Restored
	told := queue.Event{Type: queue.EventRestored, Tokens: restored, Total: r.base - restored}
	if err := r.tell(ctx, told); err != nil {
		return Result{}, err
	}
	if err := r.read(ctx); err != nil {
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
	if err := r.store(ctx); err != nil {
		return Result{}, err
	}
	return r.result, r.dropRolling(ctx)
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
	if err := r.identity.Restores(r.manifest, r.OldSalts); err != nil {
		return fmt.Errorf("handle %s: %w", cache.HandleName(digest), err)
	}
	if r.manifest.Tokens != h.Tokens {
		return fmt.Errorf("handle %s says %d tokens, its manifest %d: %w", cache.HandleName(digest), h.Tokens, r.manifest.Tokens, cache.ErrCorrupt)
	}
	if r.manifest.TokensOnly() {
		r.document, err = r.Space.Tokens(ctx, r.manifest)
		return err
	}
	return r.extendable()
}

// extendable refuses to keep a state that goes on from one of another producer: its chain has no keys here.
func (r *resume) extendable() error {
	if !r.order.Keep || r.order.KeepState == queue.KeepNone {
		return nil
	}
	if r.identity.Model != r.manifest.Identity.Model {
		return fmt.Errorf("keep the extended state: the handle's state was stored under an older salt or seal key: store it anew with lector snapshot reseal, then resume that handle: %w", cache.ErrIncompatible)
	}
	if r.identity.Producer != r.manifest.Identity.Producer {
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

// restore fills the sequence with the handle's state, or with what is stored of its tokens.
func (r *resume) restore(ctx context.Context) error {
	m, err := r.source(ctx)
	if err != nil {
		return err
	}
	r.drawn(ctx, 0, m.Tokens)
	if m.Tokens > 0 {
		bounded := cache.Agree(m.Identity.Class, r.identity.Class) != cache.Exact
		err := r.metered(m.Tokens, func() (int64, error) {
			return restore(ctx, r.seq, restoreArgs{space: r.Space, manifest: m, job: r.rolling(), bounded: bounded})
		})
		if r.document != nil && errors.Is(err, cache.ErrNotFound) {
			err = fmt.Errorf("%w: %w", errVanished, err) // it was there a moment ago, and is nothing that the handle names
		}
		if err != nil {
			return err
		}
	}
	r.reached(m.Tokens)
	r.result.Usage.Restored = m.Tokens
	if r.order.Keep && r.order.KeepState != queue.KeepNone {
		r.keeper = newKeeper(r, m)
	}
	return nil
}

// source describes the state to go on from. For a handle that holds token ids alone it is the deepest that anybody has
// stored of them, or none: of no tokens.
func (r *resume) source(ctx context.Context) (cache.Manifest, error) {
	if r.document == nil {
		return r.manifest, nil
	}
	keys := cache.Keys(r.identity.Producer, r.document, cache.Boundaries(len(r.document), r.identity.Grid))
	n, nodes, err := r.Space.Deepest(ctx, r.rolling(), keys)
	if err != nil {
		return cache.Manifest{}, fmt.Errorf("look for stored state: %w", err)
	}
	if n == 0 {
		return cache.Manifest{}, nil
	}
	return cache.NewManifest(r.identity, nodes)
}

// rolling names the job whose rolling state may be gone on from: this one, where it reads a document again and keeps that.
func (r *resume) rolling() string {
	if r.document == nil {
		return ""
	}
	return r.job.ID
}

// read prefills what is not restored of the handle, then the prompt.
func (r *resume) read(ctx context.Context) error {
	if rest := r.manifest.Tokens - r.result.Usage.Restored; rest > 0 {
		err := r.computing(ctx, "reread", &r.result.Timings.Reread, func(ctx context.Context) error {
			return r.prefill(ctx, r.document[r.result.Usage.Restored:], &r.result.Usage.Reread)
		})
		if err != nil {
			return fmt.Errorf("read the handle's tokens again: %w", err)
		}
	}
	return r.computing(ctx, "prefill", &r.result.Timings.Prefill, func(ctx context.Context) error {
		return r.prefill(ctx, r.prompt, &r.result.Usage.Prefilled)
	})
}

// computing is lap without what was waited within it for storing, which is a part of its own.
func (r *resume) computing(ctx context.Context, name string, part *float64, f func(context.Context) error) error {
	stood := r.result.Timings.Store
	err := r.lap(ctx, name, part, f)
	*part -= r.result.Timings.Store - stood
	return err
}

// prefill reads the tokens that follow what the sequence holds, in chunks that end where a state may be taken, and counts
// them.
func (r *resume) prefill(ctx context.Context, tokens []int32, count *int) error {
	first := int(r.seq.Pos())
	r.drawn(ctx, first, first+len(tokens))
	from := first
	for _, to := range cuts(first, first+len(tokens), r.identity.Grid, r.Engine.Info().MaxChunk) {
		if err := r.drained(); err != nil {
			return err
		}
		chunk := tokens[from-first : to-first]
		step, err := r.seq.Prefill(ctx, chunk, nil)
		if err != nil {
			return fmt.Errorf("read tokens at %d: %w", from, err)
		}
		r.meter().Computed(queue.Resume, step.Stats)
		*count += len(chunk)
		if err := r.keeper.boundary(ctx); err != nil {
			return err
		}
		from = to
	}
	return nil
}
