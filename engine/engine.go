// Package engine is the contract of the machine that reads: it turns tokens into state, advances a
// timeline chunk by chunk, and lends that state out as named regions. It knows no network, no queue and
// no store; engine/qwen4exp implements it over engine/ops.
//
// What it promises:
//
//  1. State after p tokens is a pure function of the engine's Identity and those tokens. How the tokens
//     were cut into chunks leaves no trace in a class that says so (cpu-f32 does).
//  2. Bad input is refused before any effect: an empty chunk, a token outside the vocabulary, a chunk
//     beyond capacity.
//  3. A call that fails or is cancelled midway leaves the sequence as it was, or broken: then every call
//     but Restore and Close returns ErrBroken. It adds nothing to the statistics.
//  4. Drafts never change a result.
//
// An Engine may be used from any goroutine; a Sequence from one at a time.
// Start reading at Sequence.
package engine

import "context"

// Token is an id of the model's vocabulary.
type Token = int32

// Pos counts tokens consumed: a sequence at Pos p holds the state after tokens [0, p).
type Pos int

// NoToken stands where there is no token, such as the draft of a model without a draft head.
const NoToken Token = -1

// Engine is a loaded, immutable model.
type Engine interface {
	// Identity says everything that the numbers of a state depend on.
	Identity() (Identity, error)
	// Info describes the model for people and for planning.
	Info() Info
	// NewSequence opens an empty timeline for at most capacity tokens (0: the model's own limit).
	NewSequence(capacity int) (Sequence, error)
	// Close releases the model. Sequences must be closed first.
	Close() error
}

// Identity is what a state's bits depend on. Two engines with equal identities give equal states.
type Identity struct {
	Fields []Field // in a fixed order: weights, config, tokenizer, mtp_hidden_norm, codec
	Class  string  // numeric class: one written order of every sum, such as "cpu-f32"
	Grid   int     // tokens: node boundaries are multiples of it; a constant of the class
}

// Field is one named part of an identity; Value is a digest in hex or a plain setting.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Info describes a loaded model.
type Info struct {
	Name          string  // folder name or "nano"
	Layers        int     // decoder layers of the trunk
	Vocabulary    int     // rows of the output head
	MaxTokens     int     // the model's own context limit
	MaxChunk      int     // largest chunk Prefill takes
	DraftHead     bool    // whether Draft works
	Stops         []Token // ids that end a generated text
	BytesPerToken int     // of row regions
	FixedBytes    int     // of fixed regions
}

// Sequence is one live timeline.
type Sequence interface {
	// Pos is the number of tokens consumed.
	Pos() Pos
	// Capacity is the largest Pos this sequence can reach.
	Capacity() int
	// Tokens returns a copy of the tokens consumed.
	Tokens() []Token

	// Prefill consumes one chunk. next is the token that follows it when the caller knows it: the draft
	// then follows next instead of the greedy token. The exported state never depends on next.
	// Errors: ErrEmpty, ErrToken, ErrTooLong, ErrMemory, ErrDevice, ErrStorage, ErrNumeric, ErrBroken, the
	// context's error.
	Prefill(ctx context.Context, tokens []Token, next *Token) (Step, error)

	// Decode consumes tokens[0] and as many of the drafts tokens[1:] as choose confirms: row i is chosen
	// from its logits, and draft i+1 is accepted while it equals the choice. The accepted prefix is
	// committed; a rejected draft leaves no trace. At most MaxDrafts drafts.
	Decode(ctx context.Context, tokens []Token, choose Choose) (Decoded, error)

	// Draft proposes n chained drafts for the tokens that follow next, which itself follows the sequence.
	// It changes no committed state. Without a draft head: ErrNoHead.
	Draft(ctx context.Context, next Token, n int) ([]Token, error)

	// Logits computes the logits [vocabulary] of the last consumed row from its kept residual.
	Logits(ctx context.Context) ([]float32, error)

	// Probe recomputes from the state what the last step reported: a check that a restored state is live.
	Probe(ctx context.Context) (Probe, error)

	// Regions lends the whole state. Views stay valid until the next call that moves the sequence.
	Regions() ([]Region, error)

	// Restore prepares an empty or broken sequence to take the state after pos tokens.
	Restore(pos Pos) (Restoration, error)

	// Stats sums the completed chunks.
	Stats() ChunkStats

	// Close releases the sequence; closing twice is harmless.
	Close() error
}

// MaxDrafts is the most drafts one Decode takes.
const MaxDrafts = 3

// Choose picks the token at pos from the logits of the row before it. It must be a pure function. nil picks the greedy
// token, the largest logit and the lower id of equals, and spares an engine to bring the logits to the host.
type Choose func(pos Pos, logits []float32) Token

// Step is what a chunk's last row says.
type Step struct {
	Probe
	Draft Token // first draft: of the token after next (given) or after the greedy token; NoToken without a head
	Stats ChunkStats
}

// Probe is what the last row of a state says: stored with a snapshot, recomputed after a restore.
type Probe struct {
	Top   []TopLogit `json:"top"`   // the largest logits, best first, ties to the lower id
	Next  Token      `json:"next"`  // greedy token
	Draft Token      `json:"draft"` // the head's draft of the token after Next, NoToken without a head
}

// TopLogit is one entry of a Probe.
type TopLogit struct {
	ID    Token   `json:"id"`
	Logit float32 `json:"logit"`
}

// ProbeTop is how many logits a Probe keeps (fewer where the vocabulary is smaller).
const ProbeTop = 8

// Decoded is what one Decode committed.
type Decoded struct {
	// Chosen holds the choice after each committed row: the accepted drafts, then the token to go on with,
	// which is not consumed yet. It is never empty.
	Chosen []Token
	Stats  ChunkStats
}

// ChunkStats is where a chunk's time and reads went. Seconds is the whole; the parts add up to it with Other.
type ChunkStats struct {
	Tokens      int     `json:"tokens"`
	Seconds     float64 `json:"seconds"`
	Records     int     `json:"records"`      // expert records used from storage
	RecordBytes int64   `json:"record_bytes"` // in stored precision
	RingWait    float64 `json:"ring_wait"`    // seconds the fetcher waited for a free slot
	Delta       float64 `json:"delta"`        // seconds of DeltaNet layers without their experts
	Attention   float64 `json:"attention"`    // seconds of attention layers without their experts
	Experts     float64 `json:"experts"`
	MTP         float64 `json:"mtp"` // the draft head, its experts included
	Ngram       float64 `json:"ngram"`
	Other       float64 `json:"other"`
}

// Add sums two records.
func (s ChunkStats) Add(o ChunkStats) ChunkStats {
	return ChunkStats{
		Tokens: s.Tokens + o.Tokens, Seconds: s.Seconds + o.Seconds, Records: s.Records + o.Records,
		RecordBytes: s.RecordBytes + o.RecordBytes, RingWait: s.RingWait + o.RingWait, Delta: s.Delta + o.Delta,
		Attention: s.Attention + o.Attention, Experts: s.Experts + o.Experts, MTP: s.MTP + o.MTP,
		Ngram: s.Ngram + o.Ngram, Other: s.Other + o.Other,
	}
}
