package weights

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// textJSON is the text model's part of config.json as written. Pointers tell absent (or null) from zero.
type textJSON struct {
	ModelType *string `json:"model_type"`

	Vocab     *int64   `json:"vocab_size"`
	Hidden    *int64   `json:"hidden_size"`
	Layers    *int64   `json:"num_hidden_layers"`
	Types     []string `json:"layer_types"`
	Interval  *int64   `json:"full_attention_interval"`
	Eps       *float64 `json:"rms_norm_eps"`
	MaxTokens *int64   `json:"max_position_embeddings"`
	Tied      *bool    `json:"tie_word_embeddings"`
	Act       *string  `json:"hidden_act"`
	Bias      *bool    `json:"attention_bias"`

	Streams *int64 `json:"hc_count"`
	LowRank *int64 `json:"hc_lowrank"`

	Heads   *int64    `json:"num_attention_heads"`
	KVHeads *int64    `json:"num_key_value_heads"`
	HeadDim *int64    `json:"head_dim"`
	Partial *float64  `json:"partial_rotary_factor"`
	Theta   *float64  `json:"rope_theta"`
	Rope    *ropeJSON `json:"rope_parameters"`
	Scaling *ropeJSON `json:"rope_scaling"`

	IndexHeads  *int64 `json:"indexer_n_heads"`
	IndexKV     *int64 `json:"indexer_kv_heads"`
	IndexDim    *int64 `json:"indexer_head_dim"`
	IndexBudget *int64 `json:"indexer_budget"`
	IndexRatio  *int64 `json:"indexer_compress_ratio"`

	DeltaKeyHeads   *int64  `json:"linear_num_key_heads"`
	DeltaValueHeads *int64  `json:"linear_num_value_heads"`
	DeltaKeyDim     *int64  `json:"linear_key_head_dim"`
	DeltaValueDim   *int64  `json:"linear_value_head_dim"`
	DeltaTaps       *int64  `json:"linear_conv_kernel_dim"`
	Gate            *string `json:"output_gate_type"`

	Experts     *int64 `json:"num_experts"`
	TopK        *int64 `json:"num_experts_per_tok"`
	ExpertInner *int64 `json:"moe_intermediate_size"`
	SharedInner *int64 `json:"shared_expert_intermediate_size"`
	Renormalise *bool  `json:"norm_topk_prob"`

	PLELayers    []int64 `json:"ple_layer_ids"`
	PLEDim       *int64  `json:"ple_embed_dim"`
	PLETaps      *int64  `json:"ple_conv_kernel_size"`
	NgramSize    *int64  `json:"ngram_size"`
	NgramHeads   *int64  `json:"heads_per_ngram"`
	NgramBase    *int64  `json:"ngram_vocab_size_base"`
	NgramDivisor *int64  `json:"make_ngram_vocab_size_divisible_by"`
	NgramShards  *int64  `json:"split_ngram_parts"`
	Seed         *int64  `json:"seed"`
	EOS          tokens  `json:"eos_token_id"`

	MTPLayers    *int64   `json:"mtp_num_hidden_layers"`
	MTPDedicated *bool    `json:"mtp_use_dedicated_embeddings"`
	MTP          *mtpJSON `json:"mtp"`
}

type ropeJSON struct {
	Type    *string  `json:"rope_type"`
	Legacy  *string  `json:"type"`
	Theta   *float64 `json:"rope_theta"`
	Partial *float64 `json:"partial_rotary_factor"`
}

type mtpJSON struct {
	Layers *int64 `json:"num_hidden_layers"`
}

// tokens is one id or a list of ids.
type tokens []int64

// UnmarshalJSON accepts null, a number and a list.
func (t *tokens) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]int64)(t))
	}
	var one *int64
	if err := json.Unmarshal(data, &one); err != nil || one == nil {
		return err
	}
	*t = tokens{*one}
	return nil
}

// defaultSeed reproduces the multipliers that the released checkpoint stores; its config has no seed.
const defaultSeed = 1234

// ParseConfig reads a config.json: a text model nested in text_config or flat. generation is the text of the
// generation_config.json beside it, nil without one. Every error names the field, its value and what is allowed.
func ParseConfig(data, generation []byte) (*Config, error) {
	var top struct {
		textJSON
		Text *textJSON `json:"text_config"`
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, fmt.Errorf("read config.json: %w", err)
	}
	text := &top.textJSON
	if err := checkModelType(top.ModelType, top.Text); err != nil {
		return nil, err
	}
	if top.Text != nil {
		text = top.Text
		if text.Tied == nil {
			text.Tied = top.Tied // transformers writes it at the top
		}
	}
	c, err := text.config()
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	c.Stops, err = stops(text.EOS, generation, c.Vocab)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// checkModelType accepts the whole model and its text tower alone.
func checkModelType(top *string, text *textJSON) error {
	accept := func(t *string) bool { return *t == "qwen4_exp" || *t == "qwen4_exp_text" }
	refuse := func(t *string) error {
		return fmt.Errorf("config.json: model type %q is not supported: lector reads qwen4_exp", *t)
	}
	if top != nil && !accept(top) {
		return refuse(top)
	}
	if text != nil && text.ModelType != nil && !accept(text.ModelType) {
		return refuse(text.ModelType)
	}
	if top == nil && (text == nil || text.ModelType == nil) {
		return fmt.Errorf("config.json: model_type is missing: lector reads qwen4_exp")
	}
	return nil
}

// stops are the ids that end a text: not the one that cuts n-grams, since generation may stop at more.
func stops(eos tokens, generation []byte, vocab int) ([]int32, error) {
	if generation != nil {
		var g struct {
			EOS tokens `json:"eos_token_id"`
		}
		if err := json.Unmarshal(generation, &g); err != nil {
			return nil, fmt.Errorf("read generation_config.json: %w", err)
		}
		if len(g.EOS) > 0 {
			eos = g.EOS
		}
	}
	var ids []int32
	for _, id := range eos {
		if id < 0 || id >= int64(vocab) {
			return nil, fmt.Errorf("eos_token_id %d is outside the vocabulary of %d", id, vocab)
		}
		if !slices.Contains(ids, int32(id)) {
			ids = append(ids, int32(id))
		}
	}
	return ids, nil
}

// fieldReader takes fields one after another and keeps the first error.
type fieldReader struct{ err error }

func (r *fieldReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// size takes a required whole number in [1, limit].
func (r *fieldReader) size(key string, value *int64, limit int64) int {
	if value == nil {
		r.fail("%s is missing", key)
		return 0
	}
	return r.sizeOr(key, value, 0, limit)
}

// sizeOr takes a whole number in [1, limit] that has a default.
func (r *fieldReader) sizeOr(key string, value *int64, absent, limit int64) int {
	if value == nil {
		return int(absent)
	}
	if *value < 1 || *value > limit {
		r.fail("%s is %d: it must be between 1 and %d", key, *value, limit)
		return 0
	}
	return int(*value)
}

// positive takes a finite number above 0.
func (r *fieldReader) positive(key string, value float64) float64 {
	if !(value > 0) || math.IsInf(value, 0) {
		r.fail("%s is %v: it must be above 0", key, value)
	}
	return value
}

func or[T any](value *T, absent T) T {
	if value == nil {
		return absent
	}
	return *value
}

// Limits far above any real model. They keep products of sizes within 64 bits and refuse absurd files by name.
const (
	maxWidth  = 1 << 20
	maxCount  = 1 << 16
	maxVocab  = 1 << 24
	maxTokens = 1 << 30
)

// config fills in the defaults and checks what does not depend on other fields.
func (t *textJSON) config() (*Config, error) {
	r := &fieldReader{}
	c := &Config{
		Vocab: r.size("vocab_size", t.Vocab, maxVocab), Hidden: r.size("hidden_size", t.Hidden, maxWidth),
		Layers:    r.size("num_hidden_layers", t.Layers, 4096),
		MaxTokens: r.size("max_position_embeddings", t.MaxTokens, maxTokens),
		Eps:       r.positive("rms_norm_eps", or(t.Eps, 1e-6)), Tied: or(t.Tied, false),
		Streams: r.size("hc_count", t.Streams, 64), LowRank: r.size("hc_lowrank", t.LowRank, maxWidth),
		Heads: r.size("num_attention_heads", t.Heads, maxCount), KVHeads: r.size("num_key_value_heads", t.KVHeads, maxCount),
		HeadDim:    r.size("head_dim", t.HeadDim, maxCount),
		IndexHeads: r.size("indexer_n_heads", t.IndexHeads, maxCount), IndexDim: r.size("indexer_head_dim", t.IndexDim, maxCount),
		IndexBudget: r.size("indexer_budget", t.IndexBudget, maxTokens), IndexRatio: r.size("indexer_compress_ratio", t.IndexRatio, maxCount),
		DeltaKeyHeads: r.size("linear_num_key_heads", t.DeltaKeyHeads, maxCount), DeltaValueHeads: r.size("linear_num_value_heads", t.DeltaValueHeads, maxCount),
		DeltaKeyDim: r.size("linear_key_head_dim", t.DeltaKeyDim, maxCount), DeltaValueDim: r.size("linear_value_head_dim", t.DeltaValueDim, maxCount),
		DeltaTaps: r.sizeOr("linear_conv_kernel_dim", t.DeltaTaps, 4, 256),
		Experts:   r.size("num_experts", t.Experts, maxCount), TopK: r.size("num_experts_per_tok", t.TopK, maxCount),
		ExpertInner: r.size("moe_intermediate_size", t.ExpertInner, maxWidth), SharedInner: r.size("shared_expert_intermediate_size", t.SharedInner, maxWidth),
		Renormalise: or(t.Renormalise, true), EOS: -1,
	}
	if len(t.EOS) > 0 && t.EOS[0] >= 0 && t.EOS[0] < int64(c.Vocab) {
		c.EOS = int32(t.EOS[0])
	}
	if r.err == nil {
		t.rope(r, c)
		t.kinds(r, c)
		t.variants(r, c)
		t.ple(r, c)
		c.check(r)
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}
