package synth

import (
	"encoding/json"
	"fmt"
	"strings"

	"lector/engine/weights"
)

// text is the text_config that a preset writes. Order and names are those of config.json.
type text struct {
	ModelType  string   `json:"model_type"`
	Vocab      int      `json:"vocab_size"`
	Hidden     int      `json:"hidden_size"`
	Layers     int      `json:"num_hidden_layers"`
	Types      []string `json:"layer_types"`
	Eps        float64  `json:"rms_norm_eps"`
	MaxTokens  int      `json:"max_position_embeddings"`
	Tied       bool     `json:"tie_word_embeddings"`
	Act        string   `json:"hidden_act"`
	Gate       string   `json:"output_gate_type"`
	Streams    int      `json:"hc_count"`
	LowRank    int      `json:"hc_lowrank"`
	Heads      int      `json:"num_attention_heads"`
	KVHeads    int      `json:"num_key_value_heads"`
	HeadDim    int      `json:"head_dim"`
	Rope       rope     `json:"rope_parameters"`
	IndexHeads int      `json:"indexer_n_heads"`
	IndexKV    int      `json:"indexer_kv_heads"`
	IndexDim   int      `json:"indexer_head_dim"`
	Budget     int      `json:"indexer_budget"`
	Ratio      int      `json:"indexer_compress_ratio"`
	KeyHeads   int      `json:"linear_num_key_heads"`
	ValueHeads int      `json:"linear_num_value_heads"`
	KeyDim     int      `json:"linear_key_head_dim"`
	ValueDim   int      `json:"linear_value_head_dim"`
	Taps       int      `json:"linear_conv_kernel_dim"`
	Experts    int      `json:"num_experts"`
	TopK       int      `json:"num_experts_per_tok"`
	Inner      int      `json:"moe_intermediate_size"`
	Shared     int      `json:"shared_expert_intermediate_size"`
	PLE        []int    `json:"ple_layer_ids"`
	PLEDim     int      `json:"ple_embed_dim"`
	PLETaps    int      `json:"ple_conv_kernel_size"`
	Ngram      int      `json:"ngram_size"`
	NgramHeads int      `json:"heads_per_ngram"`
	Base       int      `json:"ngram_vocab_size_base"`
	Divisor    int      `json:"make_ngram_vocab_size_divisible_by"`
	Shards     int      `json:"split_ngram_parts"`
	EOS        int      `json:"eos_token_id"`
	MTP        int      `json:"mtp_num_hidden_layers"`
	DType      string   `json:"dtype"`
}

type rope struct {
	Type    string  `json:"rope_type"`
	Theta   float64 `json:"rope_theta"`
	Partial float64 `json:"partial_rotary_factor"`
}

// Released names the released model's own shapes, which Reserve takes: written out they would be 352 GB.
const Released = "released"

// Presets lists the names that Write takes.
func Presets() []string { return []string{"nano", "tiny", "mid", "real-shape"} }

// preset is the geometry of a name.
func preset(name string) (text, error) {
	common := text{
		ModelType: "qwen4_exp_text", Eps: 1e-6, Act: "silu", Gate: "sigmoid", Streams: 4, IndexKV: 1, Ratio: 4, Taps: 4,
		Rope: rope{"default", 1e7, 0.25}, PLE: []int{2}, PLETaps: 4, Ngram: 3, Divisor: 128, Shards: 4, DType: "bfloat16",
	}
	t := common
	switch name {
	case "nano": // the built-in model's
		t.Vocab, t.Hidden, t.Layers, t.MaxTokens, t.LowRank = 4096, 256, 8, 32768, 64
		t.Heads, t.KVHeads, t.HeadDim, t.Rope.Theta = 4, 2, 64, 1e6
		t.IndexHeads, t.IndexDim, t.Budget = 4, 64, 512
		t.KeyHeads, t.ValueHeads, t.KeyDim, t.ValueDim = 4, 8, 64, 64
		t.Experts, t.TopK, t.Inner, t.Shared = 16, 2, 64, 128
		t.PLEDim, t.NgramHeads, t.Base, t.EOS, t.MTP = 256, 4, 4000, 4093, 1
	case "tiny": // the fixtures'
		t.Vocab, t.Hidden, t.Layers, t.MaxTokens, t.LowRank = 512, 128, 8, 4096, 64
		t.Heads, t.KVHeads, t.HeadDim = 4, 2, 32
		t.IndexHeads, t.IndexDim, t.Budget = 2, 32, 32
		t.KeyHeads, t.ValueHeads, t.KeyDim, t.ValueDim = 2, 4, 32, 32
		t.Experts, t.TopK, t.Inner, t.Shared = 8, 2, 64, 64
		t.PLEDim, t.NgramHeads, t.Base, t.EOS, t.MTP = 128, 2, 500, 1, 1
	case "mid": // three quarters of a billion parameters, 64 experts: fits any machine, and is large enough to time
		t.Vocab, t.Hidden, t.Layers, t.MaxTokens, t.LowRank = 8192, 1024, 12, 131072, 128
		t.Heads, t.KVHeads, t.HeadDim = 8, 2, 128
		t.IndexHeads, t.IndexDim, t.Budget = 4, 64, 2048
		t.KeyHeads, t.ValueHeads, t.KeyDim, t.ValueDim = 8, 16, 64, 64
		t.Experts, t.TopK, t.Inner, t.Shared = 64, 4, 256, 256
		t.PLEDim, t.NgramHeads, t.Base, t.EOS = 1024, 4, 20000, 4093
	case "real-shape", Released: // the release's widths, with fewer layers and experts and a shorter table, or with all
		t.Vocab, t.Hidden, t.Layers, t.MaxTokens, t.LowRank = 248320, 2560, 4, 262144, 320
		t.Heads, t.KVHeads, t.HeadDim = 24, 2, 256
		t.IndexHeads, t.IndexDim, t.Budget = 4, 128, 2048
		t.KeyHeads, t.ValueHeads, t.KeyDim, t.ValueDim = 16, 48, 128, 128
		t.Experts, t.TopK, t.Inner, t.Shared = 32, 10, 640, 640
		t.PLEDim, t.NgramHeads, t.Base, t.Shards, t.EOS, t.MTP = 2560, 8, 100000, 128, 248044, 1
		if name == Released {
			t.Layers, t.Experts, t.Base = 48, 512, 20000000
		}
	default:
		return t, fmt.Errorf("preset %q: it must be one of %s", name, strings.Join(Presets(), ", "))
	}
	return t, nil
}

// config is the text of config.json and what it says.
func (o Options) config() ([]byte, *weights.Config, error) {
	t, err := preset(o.Preset)
	if err != nil {
		return nil, nil, err
	}
	if o.Layers != 0 {
		t.Layers = o.Layers
	}
	if o.Experts != 0 {
		t.Experts = o.Experts
	}
	if t.Layers < 4 {
		return nil, nil, fmt.Errorf("%d layers: at least 4, since every fourth is an attention layer", t.Layers)
	}
	for i := range t.Layers {
		kind := weights.Linear
		if i%4 == 3 {
			kind = weights.Attention
		}
		t.Types = append(t.Types, kind.String())
	}
	data, err := json.MarshalIndent(struct {
		Architectures []string `json:"architectures"`
		ModelType     string   `json:"model_type"`
		Text          text     `json:"text_config"`
	}{[]string{"Qwen4ExpForConditionalGeneration"}, "qwen4_exp", t}, "", " ")
	if err != nil {
		return nil, nil, err
	}
	cfg, err := weights.ParseConfig(data, nil)
	return append(data, '\n'), cfg, err
}
