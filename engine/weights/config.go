package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// LayerKind says which mixer a decoder layer has.
type LayerKind uint8

const (
	Linear    LayerKind = iota // Gated DeltaNet
	Attention                  // gated attention with QSA
)

// String is the released spelling.
func (k LayerKind) String() string {
	if k == Linear {
		return "linear_attention"
	}
	return "full_attention"
}

// Config is the effective configuration of the text model: every field the network needs, with the defaults
// that the released file leaves out. The comment of a field is its key in config.json.
type Config struct {
	Vocab  int         // vocab_size: rows of embedding and output head
	Hidden int         // hidden_size, h
	Layers int         // num_hidden_layers
	Kinds  []LayerKind // layer_types, or full_attention_interval [Layers]
	Eps    float64     // rms_norm_eps

	MaxTokens int  // max_position_embeddings: no part of the digest
	Tied      bool // tie_word_embeddings: the output head is the embedding

	Streams int // hc_count, n
	LowRank int // hc_lowrank, r

	Heads   int     // num_attention_heads, Hq
	KVHeads int     // num_key_value_heads, Hkv
	HeadDim int     // head_dim, hd
	Rotary  int     // dims that turn: head_dim * partial_rotary_factor
	Theta   float64 // rope_theta

	IndexHeads  int // indexer_n_heads, Hi
	IndexDim    int // indexer_head_dim, di
	IndexBudget int // indexer_budget, B, in tokens
	IndexRatio  int // indexer_compress_ratio, c, in tokens

	DeltaKeyHeads   int  // linear_num_key_heads, Hk
	DeltaValueHeads int  // linear_num_value_heads, Hv
	DeltaKeyDim     int  // linear_key_head_dim, dk
	DeltaValueDim   int  // linear_value_head_dim, dv
	DeltaTaps       int  // linear_conv_kernel_dim, K
	SiLUGate        bool // output_gate_type is silu; else sigmoid

	Experts     int  // num_experts, E
	TopK        int  // num_experts_per_tok, k
	ExpertInner int  // moe_intermediate_size
	SharedInner int  // shared_expert_intermediate_size
	Renormalise bool // norm_topk_prob

	PLELayers    []int  // ple_layer_ids as ZERO-based layer indexes, ascending; empty without PLE, then the rest is zero
	PLEDim       int    // ple_embed_dim
	PLETaps      int    // ple_conv_kernel_size, Kp
	NgramSize    int    // ngram_size, N
	NgramHeads   int    // heads_per_ngram, H: heads of one n-gram order; (N-1)*H in all
	NgramBase    int    // ngram_vocab_size_base
	NgramDivisor int    // make_ngram_vocab_size_divisible_by
	NgramShards  int    // split_ngram_parts
	Seed         uint64 // seed, modulo 2^64
	EOS          int32  // eos_token_id of the text model (first entry of a list), which cuts n-grams; -1 if absent

	MTPLayers int // mtp_num_hidden_layers: 0 or 1. Open makes it 0 where the file holds no head

	Stops []int32 // ids that end a text: eos of generation_config.json, else of the text model. No part of the digest
}

// Wide is the width of the residual: all streams, n*h.
func (c *Config) Wide() int { return c.Streams * c.Hidden }

// DeltaChannels is the width of a DeltaNet layer's qkv, 2*Hk*dk + Hv*dv.
func (c *Config) DeltaChannels() int {
	return 2*c.DeltaKeyHeads*c.DeltaKeyDim + c.DeltaValueHeads*c.DeltaValueDim
}

// NgramDim is the length of one row of the n-gram table.
func (c *Config) NgramDim() int {
	if len(c.PLELayers) == 0 {
		return 0
	}
	return c.PLEDim / c.AllNgramHeads()
}

// AllNgramHeads is the number of rows that one position gathers, (N-1)*H; 0 without PLE.
func (c *Config) AllNgramHeads() int { return max(c.NgramSize-1, 0) * c.NgramHeads }

// Digest names everything in the config that numbers depend on, in hex: equal digests and equal weights give
// equal results. Spelling, defaults left out or written out, and the context limit make no difference.
func (c *Config) Digest() string {
	var b strings.Builder
	b.WriteString("lector qwen4_exp config 1\n")
	for _, f := range c.fields() {
		fmt.Fprintf(&b, "%s=%v\n", f.key, f.value)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

type configField struct {
	key   string
	value any
}

// fields lists what the digest covers, in its fixed order. A new field that changes numbers goes to the end.
func (c *Config) fields() []configField {
	fields := []configField{
		{"vocab_size", c.Vocab}, {"hidden_size", c.Hidden}, {"num_hidden_layers", c.Layers},
		{"layer_types", c.Kinds}, {"rms_norm_eps", c.Eps}, {"tie_word_embeddings", c.Tied},
		{"hc_count", c.Streams}, {"hc_lowrank", c.LowRank},
		{"num_attention_heads", c.Heads}, {"num_key_value_heads", c.KVHeads}, {"head_dim", c.HeadDim},
		{"rotary_dim", c.Rotary}, {"rope_theta", c.Theta},
		{"indexer_n_heads", c.IndexHeads}, {"indexer_head_dim", c.IndexDim},
		{"indexer_budget", c.IndexBudget}, {"indexer_compress_ratio", c.IndexRatio},
		{"linear_num_key_heads", c.DeltaKeyHeads}, {"linear_num_value_heads", c.DeltaValueHeads},
		{"linear_key_head_dim", c.DeltaKeyDim}, {"linear_value_head_dim", c.DeltaValueDim},
		{"linear_conv_kernel_dim", c.DeltaTaps}, {"output_gate_silu", c.SiLUGate},
		{"num_experts", c.Experts}, {"num_experts_per_tok", c.TopK}, {"moe_intermediate_size", c.ExpertInner},
		{"shared_expert_intermediate_size", c.SharedInner}, {"norm_topk_prob", c.Renormalise},
		{"mtp_num_hidden_layers", c.MTPLayers}, {"ple_layers", c.PLELayers},
	}
	if len(c.PLELayers) > 0 {
		fields = append(fields,
			configField{"ple_embed_dim", c.PLEDim}, configField{"ple_conv_kernel_size", c.PLETaps},
			configField{"ngram_size", c.NgramSize}, configField{"heads_per_ngram", c.NgramHeads},
			configField{"ngram_vocab_size_base", c.NgramBase},
			configField{"make_ngram_vocab_size_divisible_by", c.NgramDivisor},
			configField{"split_ngram_parts", c.NgramShards},
			configField{"seed", c.Seed}, configField{"eos_token_id", c.EOS})
	}
	return fields
}

// PLEIndex returns l for the l-th PLE layer, or -1 where the layer (zero-based) has none.
func (c *Config) PLEIndex(layer int) int { return slices.Index(c.PLELayers, layer) }
