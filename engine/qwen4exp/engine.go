package qwen4exp

import (
	"context"
	"fmt"
	"sync"

	"lector/engine"
	"lector/engine/ops"
	"lector/engine/stream"
	"lector/engine/weights"
)

// HiddenNorm says how the draft head's pre_fc_norm_hidden takes its mean. Only acceptance depends on it.
type HiddenNorm string

const (
	Grouped HiddenNorm = "grouped" // a mean for every stream (default)
	Flat    HiddenNorm = "flat"    // one mean over all of W
)

// Options are what a loaded model depends on besides its checkpoint.
type Options struct {
	HiddenNorm HiddenNorm // "" means Grouped
	KV         KV         // "" means KVF32
	State      State      // "" means StateF32
	// Tokenizer is the digest of the tokenizer, part of the identity.
	Tokenizer string
	// Tokens is how many ids have a token; ids from there on are never chosen. 0: all of the vocabulary.
	Tokens int
	// Memory bounds in bytes what a chunk works in, the states of all sequences (each by its capacity) and, of a packed
	// store, the records in memory. Mapped weights are not in it. 0: no bound but MaxRows and the weights' own size.
	Memory int
	// Beside is how much of Memory the rest of the process takes, so that the engine leaves it alone.
	Beside int
	// MaxRows caps a chunk in tokens. 0: the usual.
	MaxRows int
	// Panels bounds in bytes the copies of dense weights that a backend makes for decoding, beside Memory as the mapped
	// weights are. 0: none.
	Panels int
	// Stream says how a packed store is read.
	Stream stream.Options
}

// Engine implements engine.Engine over a checkpoint and a backend.
type Engine struct {
	be         ops.Backend
	late       ops.Backend // the same for a pass, which waits before it reads: operations may run late
	checkpoint *weights.Checkpoint
	net        *network
	opt        Options
	choices    int // ids that may be chosen
	maxRows    int
	store      *stream.Store // nil where all weights are in memory
	budget     budget
	turn       chan struct{} // holds one token: chunks of all sequences take turns on the scratch
	scratch    scratch
	shares     [decodeRows]shares // of passes by their rows; as scratch

	identify sync.Once
	identity engine.Identity
	idErr    error
}

var _ engine.Engine = (*Engine)(nil)

// Open binds the checkpoint's weights to a backend. The checkpoint stays open while the engine is in use
// and is the caller's to close.
func Open(c *weights.Checkpoint, be ops.Backend, opt Options) (*Engine, error) {
	if opt.HiddenNorm == "" {
		opt.HiddenNorm = Grouped
	}
	if opt.HiddenNorm != Grouped && opt.HiddenNorm != Flat {
		return nil, fmt.Errorf("mtp_hidden_norm %q: it is %s or %s", opt.HiddenNorm, Grouped, Flat)
	}
	rows, err := opt.KV.rows()
	if err != nil {
		return nil, err
	}
	if err := opt.State.check(); err != nil {
		return nil, err
	}
	net, err := bind(c, opt.HiddenNorm, be, opt.Panels)
	if err != nil {
		return nil, fmt.Errorf("open model %s: %w", c.Name(), err)
	}
	net.KV = rows
	if opt.State == StateBF16 {
		net.Cell = be.Grid()
	}
	if be.Grid()%net.Ratio != 0 {
		return nil, fmt.Errorf("open model %s: class %s has a grid of %d tokens, not a multiple of the indexer's %d", c.Name(), be.Class(), be.Grid(), net.Ratio)
	}
	e := &Engine{be: be, late: be, checkpoint: c, net: net, opt: opt, choices: net.Vocab, turn: make(chan struct{}, 1)}
	if b, ok := be.(ops.Batcher); ok {
		e.late = b.Batch()
	}
	if opt.Tokens > 0 {
		e.choices = min(opt.Tokens, net.Vocab)
	}
	if err := e.share(); err != nil {
		return nil, fmt.Errorf("open model %s: %w", c.Name(), err)
	}
	return e, nil
}

// Identity implements engine.Engine. The first call reads every weight.
func (e *Engine) Identity() (engine.Identity, error) {
	e.identify.Do(func() {
		digest, err := e.checkpoint.Digest()
		if err != nil {
			e.idErr = fmt.Errorf("identify model %s: %w", e.checkpoint.Name(), err)
			return
		}
		e.identity = engine.Identity{
			Fields: []engine.Field{
				{Name: "weights", Value: digest},
				{Name: "config", Value: e.checkpoint.Config().Digest()},
				{Name: "tokenizer", Value: e.opt.Tokenizer},
				{Name: "mtp_hidden_norm", Value: string(e.opt.HiddenNorm)},
				{Name: "codec", Value: e.opt.Codec()},
			},
			Class: e.be.Class(),
			Grid:  e.be.Grid(),
		}
	})
	return e.identity, e.idErr
}

// Info implements engine.Engine.
func (e *Engine) Info() engine.Info {
	d, c := &e.net.dims, e.checkpoint.Config()
	info := engine.Info{
		Name: e.checkpoint.Name(), Layers: len(e.net.layers), Vocabulary: e.choices, MaxTokens: c.MaxTokens,
		MaxChunk: e.maxRows, DraftHead: e.net.mtp != nil, Stops: c.Stops, BytesPerToken: 4, FixedBytes: 4*d.Wide + 8,
	}
	cache := d.cacheBytes()
	if e.net.mtp != nil {
		info.BytesPerToken += cache
	}
	for i := range e.net.layers {
		switch l := &e.net.layers[i]; {
		case l.attn != nil:
			info.BytesPerToken += cache
		default:
			info.FixedBytes += 4 * (d.Delta.Hv*d.Delta.Dk*d.Delta.Dv + (d.Taps-1)*d.Channels)
			if d.Cell > 0 {
				info.FixedBytes += 4 * 2 * d.Delta.Hv
			}
		}
		if e.net.layers[i].ple != nil {
			info.FixedBytes += 4 * (d.PLETaps - 1) * d.Ngram * d.Wide
		}
	}
	return info
}

// NewSequence implements engine.Engine.
func (e *Engine) NewSequence(capacity int) (engine.Sequence, error) {
	s, err := e.Sequence(capacity)
	if err != nil {
		return nil, err // not s: a nil *Sequence in an interface is not nil
	}
	return s, nil
}

// Sequence is NewSequence with the debug views of the concrete type.
func (e *Engine) Sequence(capacity int) (*Sequence, error) {
	limit := e.checkpoint.Config().MaxTokens
	if capacity == 0 {
		capacity = limit
	}
	if capacity < 1 || capacity > limit {
		return nil, fmt.Errorf("capacity of %d tokens: %w: the model takes 1 to %d", capacity, engine.ErrTooLong, limit)
	}
	held, err := e.take(capacity)
	if err != nil {
		return nil, err
	}
	st, err := newState(e.be, e.net)
	if err != nil {
		e.giveBack(held)
		return nil, err
	}
	return &Sequence{engine: e, net: e.net, st: st, capacity: capacity, held: held}, nil
}

// claim waits for the scratch and makes it large enough for rows.
func (e *Engine) claim(ctx context.Context, rows int) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := e.scratch.ensure(e, rows); err != nil {
		<-e.turn
		return nil, err
	}
	return func() { <-e.turn }, nil
}

// ReleaseScratch gives the chunk memory back, the backend's own included; the next chunk allocates it again.
func (e *Engine) ReleaseScratch() {
	e.turn <- struct{}{}
	e.scratch.release(e.be, &e.net.dims)
	if own, ok := e.be.(ops.Scratch); ok {
		own.DropScratch()
	}
	<-e.turn
}

// Close implements engine.Engine.
func (e *Engine) Close() error {
	e.ReleaseScratch()
	if e.store == nil {
		return nil
	}
	return e.store.Close()
}
