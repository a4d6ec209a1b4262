package weights

import (
	"slices"
)

// rope reads theta and the part of a head that turns, wherever they stand.
func (t *textJSON) rope(r *fieldReader, c *Config) {
	rope := or(t.Rope, or(t.Scaling, ropeJSON{}))
	if kind := or(rope.Type, or(rope.Legacy, "default")); kind != "default" {
		r.fail("rope_type is %q: only \"default\" is supported", kind)
	}
	if rope.Theta == nil {
		rope.Theta = t.Theta
	}
	if rope.Theta == nil {
		r.fail("rope_theta is missing")
		return
	}
	c.Theta = r.positive("rope_theta", *rope.Theta)
	if rope.Partial != nil && t.Partial != nil && *rope.Partial != *t.Partial {
		r.fail("partial_rotary_factor is %v, but %v in rope_parameters", *t.Partial, *rope.Partial)
	}
	factor := or(rope.Partial, or(t.Partial, 0.25))
	if !(factor > 0 && factor <= 1) {
		r.fail("partial_rotary_factor is %v: it must be above 0 and at most 1", factor)
		return
	}
	c.Rotary = int(float64(c.HeadDim) * factor)
	if c.Rotary < 2 || c.Rotary%2 != 0 {
		r.fail("partial_rotary_factor %v of head_dim %d gives %d rotary dims: it must be an even number above 0", factor, c.HeadDim, c.Rotary)
	}
}

// attentionTypes are the spellings of an attention layer in different writers; the mixer is the same.
var attentionTypes = []string{
	"full_attention", "qwen_sparse_attention", "indexed_attention", "deepseek_sparse_attention", "hybrid_indexed",
}

// kinds reads layer_types, or makes every interval-th layer attention where they are absent.
func (t *textJSON) kinds(r *fieldReader, c *Config) {
	c.Kinds = make([]LayerKind, c.Layers)
	if t.Types == nil {
		interval := r.sizeOr("full_attention_interval", t.Interval, 4, maxCount)
		for i := range c.Kinds {
			if interval > 0 && (i+1)%interval == 0 {
				c.Kinds[i] = Attention
			}
		}
		return
	}
	if len(t.Types) != c.Layers {
		r.fail("layer_types has %d entries: num_hidden_layers is %d", len(t.Types), c.Layers)
		return
	}
	for i, name := range t.Types {
		if slices.Contains(attentionTypes, name) {
			c.Kinds[i] = Attention
		} else if name != "linear_attention" {
			r.fail("layer_types[%d] is %q: it must be linear_attention or one of %q", i, name, attentionTypes)
		}
	}
}

// variants reads the fields that choose between computations, and refuses those that are not built.
func (t *textJSON) variants(r *fieldReader, c *Config) {
	act := or(t.Act, "silu")
	if act != "silu" {
		r.fail("hidden_act is %q: only \"silu\" is supported", act)
	}
	gate := or(t.Gate, act) // the reference's fallback: an absent gate type is the activation, not sigmoid
	if gate != "silu" && gate != "sigmoid" {
		r.fail("output_gate_type is %q: it must be \"sigmoid\" or \"silu\"", gate)
	}
	c.SiLUGate = gate == "silu"
	if or(t.Bias, false) {
		r.fail("attention_bias is true: only false is supported")
	}
	layers := or(t.MTPLayers, or(or(t.MTP, mtpJSON{}).Layers, 0))
	if layers != 0 && layers != 1 {
		r.fail("mtp_num_hidden_layers is %d: it must be 0 or 1", layers)
	}
	c.MTPLayers = int(layers)
	if or(t.MTPDedicated, false) {
		r.fail("mtp_use_dedicated_embeddings is true: only false is supported")
	}
	if kv := or(t.IndexKV, 1); kv != 1 {
		r.fail("indexer_kv_heads is %d: it must be 1", kv)
	}
}

// ple reads the n-gram embedding's fields, which all stay zero without one.
func (t *textJSON) ple(r *fieldReader, c *Config) {
	if len(t.PLELayers) == 0 {
		return
	}
	ids := slices.Clone(t.PLELayers)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id < 1 || id > int64(c.Layers) {
			r.fail("ple_layer_ids has %d: ids are one-based, between 1 and num_hidden_layers %d", id, c.Layers)
			return
		}
		c.PLELayers = append(c.PLELayers, int(id)-1)
	}
	c.PLEDim = r.sizeOr("ple_embed_dim", t.PLEDim, int64(c.Hidden), maxWidth)
	c.PLETaps = r.sizeOr("ple_conv_kernel_size", t.PLETaps, 4, 256)
	c.NgramSize = r.size("ngram_size", t.NgramSize, 16)
	c.NgramHeads = r.size("heads_per_ngram", t.NgramHeads, 256)
	c.NgramBase = r.size("ngram_vocab_size_base", t.NgramBase, 1<<32)
	c.NgramDivisor = r.size("make_ngram_vocab_size_divisible_by", t.NgramDivisor, maxWidth)
	c.NgramShards = r.size("split_ngram_parts", t.NgramShards, maxCount)
	c.Seed = uint64(or(t.Seed, defaultSeed))
	if len(t.EOS) == 0 {
		r.fail("eos_token_id is missing: the n-gram embedding of ple_layer_ids needs it")
	} else if c.EOS < 0 {
		r.fail("eos_token_id is %d: it must be in the vocabulary of %d", t.EOS[0], c.Vocab)
	}
	if c.NgramSize == 1 {
		r.fail("ngram_size is 1: it must be at least 2")
	}
	if heads := c.AllNgramHeads(); heads > 0 && c.PLEDim%heads != 0 {
		r.fail("ple_embed_dim %d is not a multiple of (ngram_size-1)*heads_per_ngram = %d", c.PLEDim, heads)
	}
}

// check holds the rules between fields.
func (c *Config) check(r *fieldReader) {
	if c.Streams < 2 {
		r.fail("hc_count is %d: it must be at least 2", c.Streams)
	}
	divides := func(key string, value int, by string, divisor int) {
		if divisor > 0 && value%divisor != 0 {
			r.fail("%s %d is not a multiple of %s %d", key, value, by, divisor)
		}
	}
	divides("num_attention_heads", c.Heads, "num_key_value_heads", c.KVHeads)
	divides("linear_num_value_heads", c.DeltaValueHeads, "linear_num_key_heads", c.DeltaKeyHeads)
	divides("indexer_budget", c.IndexBudget, "indexer_compress_ratio", c.IndexRatio)
	if c.Rotary > c.IndexDim {
		r.fail("the %d rotary dims of a head exceed indexer_head_dim %d", c.Rotary, c.IndexDim)
	}
	if c.TopK > c.Experts {
		r.fail("num_experts_per_tok is %d: it must be at most num_experts %d", c.TopK, c.Experts)
	}
	wide := func(what string, n int) {
		if n > 1<<24 {
			r.fail("%s come to %d: more than %d is not supported", what, n, 1<<24)
		}
	}
	wide("hc_count * hidden_size", c.Wide())
	wide("num_attention_heads * head_dim", c.Heads*c.HeadDim)
	wide("indexer_n_heads * indexer_head_dim", c.IndexHeads*c.IndexDim)
	wide("the channels of linear attention", c.DeltaChannels())
}
