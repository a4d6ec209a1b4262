package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"lector/engine"
)

// Defaults of a Toy's zero fields.
const (
	ToyGrid      = 8    // tokens
	ToyMaxTokens = 4096 // tokens
	ToyMaxChunk  = 64   // tokens
)

// Toy is a deterministic engine without a network: what it knows of a text is a digest of the tokens. The zero
// value works. Its fields are settings and faults; set them before the first use.
type Toy struct {
	Seed       string         // stands for the weights: another seed is another model
	Class      string         // "": cpu-f32
	Grid       int            // tokens; 0: ToyGrid
	Vocabulary int            // 0: ToyVocabulary
	MaxTokens  int            // 0: ToyMaxTokens
	MaxChunk   int            // 0: ToyMaxChunk
	NoHead     bool           // a model that cannot draft
	Stops      []engine.Token // nil: ToyEnd alone
	Memory     int64          // budget in bytes of all sequences; 0: none
	NoRewind   bool           // sequences cannot go back

	// BeforePrefill and BeforeDecode run inside the n-th such call (from 1, over all sequences) after its input
	// was checked; an error fails the call. They may block, to hold a chunk back until a test lets it go.
	BeforePrefill func(ctx context.Context, n int, tokens []engine.Token) error
	BeforeDecode  func(ctx context.Context, n int, tokens []engine.Token) error
	// Breaks makes a failed call break its sequence instead of leaving it as it was.
	Breaks bool
	// Lenient adopts a restored state without working it out again from its tokens, as a real engine has to.
	Lenient bool

	prefills, decodes    atomic.Int64
	prefilled, committed atomic.Int64
	open                 atomic.Int64
	held                 atomic.Int64 // bytes of open sequences, where there is a budget
}

var _ engine.Engine = (*Toy)(nil)

// Prefilled is the number of tokens that completed Prefill calls consumed, over all sequences.
func (t *Toy) Prefilled() int { return int(t.prefilled.Load()) }

// Prefills is the number of Prefill calls that got past the checks of their input.
func (t *Toy) Prefills() int { return int(t.prefills.Load()) }

// Decoded is the number of rows that Decode calls committed, over all sequences.
func (t *Toy) Decoded() int { return int(t.committed.Load()) }

// Open is the number of sequences that are not closed.
func (t *Toy) Open() int { return int(t.open.Load()) }

// FailPrefill returns a BeforePrefill that fails the n-th call with err.
func FailPrefill(n int, err error) func(context.Context, int, []engine.Token) error {
	return func(_ context.Context, call int, _ []engine.Token) error {
		if call == n {
			return err
		}
		return nil
	}
}

// Block holds one call back until a test lets it go.
type Block struct {
	Hook    func(context.Context, int, []engine.Token) error // for Toy.BeforePrefill
	Started <-chan struct{}                                  // closed when the call is there
	Release chan<- struct{}                                  // close it to let the call go on; it fails when its context ends
}

// BlockPrefill holds the n-th Prefill back.
func BlockPrefill(n int) Block {
	here, open := make(chan struct{}), make(chan struct{})
	hook := func(ctx context.Context, call int, _ []engine.Token) error {
		if call != n {
			return nil
		}
		close(here)
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return Block{Hook: hook, Started: here, Release: open}
}

// Identity implements engine.Engine.
func (t *Toy) Identity() (engine.Identity, error) {
	weights := sha256.Sum256([]byte("toy weights\x00" + t.Seed))
	class := t.Class
	if class == "" {
		class = "cpu-f32"
	}
	return engine.Identity{
		Fields: []engine.Field{
			{Name: "weights", Value: hex.EncodeToString(weights[:])},
			{Name: "config", Value: fmt.Sprintf("toy-%d", t.vocabulary())},
			{Name: "tokenizer", Value: ToyTokenizer{}.Digest()},
			{Name: "mtp_hidden_norm", Value: "grouped"},
			{Name: "codec", Value: "toy-1"},
		},
		Class: class,
		Grid:  orDefault(t.Grid, ToyGrid),
	}, nil
}

// Info implements engine.Engine.
func (t *Toy) Info() engine.Info {
	stops := t.Stops
	if stops == nil {
		stops = []engine.Token{ToyEnd}
	}
	n := engine.Info{
		Name: "toy", Layers: 2, Vocabulary: t.vocabulary(),
		MaxTokens: orDefault(t.MaxTokens, ToyMaxTokens), MaxChunk: orDefault(t.MaxChunk, ToyMaxChunk),
		DraftHead: !t.NoHead, Stops: stops,
	}
	for _, r := range layout(0) {
		if r.Kind == engine.Rows {
			n.BytesPerToken += r.RowBytes()
		} else {
			n.FixedBytes += r.RowBytes()
		}
	}
	return n
}

// NewSequence implements engine.Engine.
func (t *Toy) NewSequence(capacity int) (engine.Sequence, error) {
	limit := orDefault(t.MaxTokens, ToyMaxTokens)
	if capacity == 0 {
		capacity = limit
	}
	if capacity < 0 || capacity > limit {
		return nil, fmt.Errorf("open a sequence of %d tokens where the model takes %d: %w", capacity, limit, engine.ErrTooLong)
	}
	held, err := t.reserve(capacity)
	if err != nil {
		return nil, err
	}
	t.open.Add(1)
	s := &sequence{toy: t, capacity: capacity, held: held}
	s.reset()
	if t.NoRewind {
		return s, nil
	}
	return rewinder{s}, nil
}

// Close implements engine.Engine; open sequences are an error.
func (t *Toy) Close() error {
	if n := t.Open(); n > 0 {
		return fmt.Errorf("close toy: %d sequences are still open", n)
	}
	return nil
}

func (t *Toy) vocabulary() int { return orDefault(t.Vocabulary, ToyVocabulary) }

func orDefault(v, d int) int {
	if v == 0 {
		return d
	}
	return v
}
