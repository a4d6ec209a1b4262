package weights_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lector/engine/weights"
)

func releasedConfig(t testing.TB) *weights.Config {
	t.Helper()
	text, err := os.ReadFile("testdata/released-config.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := weights.ParseConfig(text, []byte(`{"eos_token_id": [248046, 248044]}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReleasedConfig(t *testing.T) {
	kinds := slices.Repeat([]weights.LayerKind{weights.Linear, weights.Linear, weights.Linear, weights.Attention}, 12)
	want := &weights.Config{
		Vocab: 248320, Hidden: 2560, Layers: 48, Kinds: kinds, Eps: 1e-6, MaxTokens: 262144,
		Streams: 4, LowRank: 320, Heads: 24, KVHeads: 2, HeadDim: 256, Rotary: 64, Theta: 1e7,
		IndexHeads: 4, IndexDim: 128, IndexBudget: 2048, IndexRatio: 4,
		DeltaKeyHeads: 16, DeltaValueHeads: 48, DeltaKeyDim: 128, DeltaValueDim: 128, DeltaTaps: 4,
		Experts: 512, TopK: 10, ExpertInner: 640, SharedInner: 640, Renormalise: true,
		PLELayers: []int{1}, PLEDim: 2560, PLETaps: 4, NgramSize: 3, NgramHeads: 8, NgramBase: 20000000,
		NgramDivisor: 128, NgramShards: 128, Seed: 1234, EOS: 248044, MTPLayers: 1, Stops: []int32{248046, 248044},
	}
	c := releasedConfig(t)
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if c.Wide() != 10240 || c.DeltaChannels() != 10240 || c.NgramDim() != 160 || c.AllNgramHeads() != 16 {
		t.Errorf("derived sizes %d %d %d %d", c.Wide(), c.DeltaChannels(), c.NgramDim(), c.AllNgramHeads())
	}
}

// Spellings of the same model have one digest.
func TestConfigSpellings(t *testing.T) {
	base, _ := fixture(t, "tiny")
	parse := func(config []byte) *weights.Config {
		t.Helper()
		c, err := weights.ParseConfig(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	want := parse(base)
	for name, change := range map[string]func(top, text map[string]any){
		"flat": func(top, text map[string]any) {
			delete(top, "text_config")
			for k, v := range text {
				top[k] = v
			}
		},
		"interval":       func(_, text map[string]any) { delete(text, "layer_types") },
		"other interval": func(_, text map[string]any) { delete(text, "layer_types"); text["full_attention_interval"] = 4 },
		"sparse": func(_, text map[string]any) {
			text["layer_types"] = []string{"linear_attention", "linear_attention", "linear_attention", "qwen_sparse_attention", "linear_attention", "linear_attention", "linear_attention", "indexed_attention"}
		},
		"later names": func(_, text map[string]any) {
			text["layer_types"] = []string{"linear_attention", "linear_attention", "linear_attention", "deepseek_sparse_attention", "linear_attention", "linear_attention", "linear_attention", "hybrid_indexed"}
		},
		"defaults written": func(_, text map[string]any) { text["seed"] = 1234; text["norm_topk_prob"] = true },
		"eos list":         func(_, text map[string]any) { text["eos_token_id"] = []int{1, 5} },
		"factor outside":   func(_, text map[string]any) { move(text, "partial_rotary_factor") },
		"theta outside":    func(_, text map[string]any) { move(text, "rope_theta") },
		"factor twice":     func(_, text map[string]any) { text["partial_rotary_factor"] = 0.25 },
		"longer context":   func(_, text map[string]any) { text["max_position_embeddings"] = 1 << 20 },
		"nested mtp": func(_, text map[string]any) {
			delete(text, "mtp_num_hidden_layers")
			text["mtp"] = map[string]any{"num_hidden_layers": 1}
		},
		"default embedding": func(_, text map[string]any) { delete(text, "ple_embed_dim") },
		"ids twice":         func(_, text map[string]any) { text["ple_layer_ids"] = []int{2, 2} },
	} {
		got := parse(edit(t, base, change))
		if got.Digest() != want.Digest() {
			t.Errorf("%s changes the digest:\n%s", name, cmp.Diff(want, got))
		}
	}
}

// move takes a key out of rope_parameters.
func move(text map[string]any, key string) {
	rope := text["rope_parameters"].(map[string]any)
	text[key] = rope[key]
	delete(rope, key)
}

// Everything that numbers depend on changes the digest.
func TestConfigDigest(t *testing.T) {
	base, _ := fixture(t, "tiny")
	seen := map[string]string{}
	for name, change := range map[string]func(text map[string]any){
		"none": func(map[string]any) {}, "gate absent": func(m map[string]any) { m["output_gate_type"] = nil },
		"seed": func(m map[string]any) { m["seed"] = 1235 }, "topk": func(m map[string]any) { m["norm_topk_prob"] = false },
		"eos": func(m map[string]any) { m["eos_token_id"] = 2 }, "eps": func(m map[string]any) { m["rms_norm_eps"] = 1e-5 },
		"rank": func(m map[string]any) { m["hc_lowrank"] = 32 }, "k": func(m map[string]any) { m["num_experts_per_tok"] = 3 },
		"budget": func(m map[string]any) { m["indexer_budget"] = 64 }, "ple": func(m map[string]any) { m["ple_layer_ids"] = []int{3} },
		"no ple": func(m map[string]any) { m["ple_layer_ids"] = nil }, "vocab": func(m map[string]any) { m["vocab_size"] = 1024 },
		"kinds": func(m map[string]any) { delete(m, "layer_types"); m["full_attention_interval"] = 2 },
		"theta": func(m map[string]any) { m["rope_parameters"].(map[string]any)["rope_theta"] = 1e6 },
		"tied":  func(m map[string]any) { m["tie_word_embeddings"] = true }, "head": func(m map[string]any) { m["mtp_num_hidden_layers"] = 0 },
	} {
		c, err := weights.ParseConfig(edit(t, base, func(_, text map[string]any) { change(text) }), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		if other, ok := seen[c.Digest()]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[c.Digest()] = name
	}
}

func TestDefaultsOfOutputGate(t *testing.T) {
	for value, want := range map[string]bool{"sigmoid": false, "silu": true} {
		base, _ := fixture(t, "tiny")
		c, err := weights.ParseConfig(edit(t, base, func(_, text map[string]any) { text["output_gate_type"] = value }), nil)
		if err != nil || c.SiLUGate != want {
			t.Errorf("%s: %v, %v", value, c, err)
		}
	}
	odd, _ := fixture(t, "odd") // its output_gate_type is null: the activation, silu, takes its place
	if c, err := weights.ParseConfig(odd, nil); err != nil || !c.SiLUGate {
		t.Errorf("null: %v, %v", c, err)
	}
}

func TestConfigErrors(t *testing.T) {
	base, _ := fixture(t, "tiny")
	set := func(key string, value any) func(top, text map[string]any) {
		return func(_, text map[string]any) { text[key] = value }
	}
	rope := func(key string, value any) func(top, text map[string]any) {
		return func(_, text map[string]any) { text["rope_parameters"].(map[string]any)[key] = value }
	}
	for name, c := range map[string]struct {
		change func(top, text map[string]any)
		want   string
	}{
		"type":             {func(top, _ map[string]any) { top["model_type"] = "llama" }, `model type "llama" is not supported: lector reads qwen4_exp`},
		"text type":        {set("model_type", "qwen3_5_moe_text"), `model type "qwen3_5_moe_text" is not supported`},
		"no type":          {func(top, text map[string]any) { delete(top, "model_type"); delete(text, "model_type") }, "model_type is missing"},
		"missing":          {set("hidden_size", nil), "hidden_size is missing"},
		"zero":             {set("num_experts", 0), "num_experts is 0: it must be between 1 and 65536"},
		"negative":         {set("head_dim", -1), "head_dim is -1"},
		"absurd":           {set("vocab_size", 1<<40), "vocab_size is 1099511627776: it must be between 1 and 16777216"},
		"text for number":  {set("vocab_size", "many"), "vocab_size"},
		"fraction":         {set("vocab_size", 1.5), "vocab_size"},
		"streams":          {set("hc_count", 1), "hc_count is 1: it must be at least 2"},
		"key heads":        {set("indexer_kv_heads", 2), "indexer_kv_heads is 2: it must be 1"},
		"budget":           {set("indexer_budget", 33), "indexer_budget 33 is not a multiple of indexer_compress_ratio 4"},
		"rotary and index": {set("indexer_head_dim", 4), "8 rotary dims of a head exceed indexer_head_dim 4"},
		"rotary odd":       {rope("partial_rotary_factor", 0.1), "gives 3 rotary dims"},
		"rotary factor":    {rope("partial_rotary_factor", 1.5), "partial_rotary_factor is 1.5: it must be above 0 and at most 1"},
		"rotary twice":     {set("partial_rotary_factor", 0.5), "partial_rotary_factor is 0.5, but 0.25 in rope_parameters"},
		"rope type":        {rope("rope_type", "yarn"), `rope_type is "yarn"`},
		"rope scaling": {func(_, text map[string]any) {
			text["rope_scaling"] = map[string]any{"type": "linear"}
			text["rope_theta"] = 1e6
			delete(text, "rope_parameters")
		}, `rope_type is "linear"`},
		"theta":            {rope("rope_theta", 0), "rope_theta is 0: it must be above 0"},
		"no theta":         {set("rope_parameters", nil), "rope_theta is missing"},
		"eps":              {set("rms_norm_eps", -1), "rms_norm_eps is -1"},
		"types short":      {set("layer_types", []string{"linear_attention"}), "layer_types has 1 entries: num_hidden_layers is 8"},
		"type of layer":    {set("layer_types", slices.Repeat([]string{"mamba"}, 8)), `layer_types[0] is "mamba"`},
		"gate":             {set("output_gate_type", "tanh"), `output_gate_type is "tanh": it must be "sigmoid" or "silu"`},
		"activation":       {set("hidden_act", "gelu"), `hidden_act is "gelu"`},
		"bias":             {set("attention_bias", true), "attention_bias is true"},
		"heads":            {set("mtp_num_hidden_layers", 2), "mtp_num_hidden_layers is 2: it must be 0 or 1"},
		"own embeddings":   {set("mtp_use_dedicated_embeddings", true), "mtp_use_dedicated_embeddings is true"},
		"query heads":      {set("num_key_value_heads", 3), "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
		"value heads":      {set("linear_num_key_heads", 3), "linear_num_value_heads 4 is not a multiple of linear_num_key_heads 3"},
		"top k":            {set("num_experts_per_tok", 9), "num_experts_per_tok is 9: it must be at most num_experts 8"},
		"ple zero-based":   {set("ple_layer_ids", []int{0}), "ple_layer_ids has 0: ids are one-based"},
		"ple beyond":       {set("ple_layer_ids", []int{9}), "ple_layer_ids has 9"},
		"ple width":        {set("ple_embed_dim", 126), "ple_embed_dim 126 is not a multiple of (ngram_size-1)*heads_per_ngram = 4"},
		"unigram":          {set("ngram_size", 1), "ngram_size is 1: it must be at least 2"},
		"no eos":           {set("eos_token_id", nil), "eos_token_id is missing"},
		"empty eos":        {set("eos_token_id", []int{}), "eos_token_id is missing"},
		"eos outside":      {set("eos_token_id", 512), "eos_token_id is 512: it must be in the vocabulary of 512"},
		"later eos":        {set("eos_token_id", []int{1, 600}), "eos_token_id 600 is outside the vocabulary of 512"},
		"too wide":         {func(_, text map[string]any) { text["hc_count"], text["hidden_size"] = 64, 1<<20 }, "hc_count * hidden_size come to 67108864"},
		"no interval":      {func(_, text map[string]any) { delete(text, "layer_types"); text["full_attention_interval"] = 0 }, "full_attention_interval is 0"},
		"no n-gram shards": {set("split_ngram_parts", nil), "split_ngram_parts is missing"},
	} {
		_, err := weights.ParseConfig(edit(t, base, c.change), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "config") && name != "later eos" {
			t.Errorf("%s: %v\nwant %q", name, err, c.want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, name := range []string{"tiny", "odd", "tiny-mlx-folded"} {
		config, _ := fixture(f, name)
		f.Add(config)
	}
	f.Add([]byte(`{"model_type":"qwen4_exp","quantization":{"bits":4,"x":[]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := weights.ParseConfig(data, data)
		if err != nil {
			return
		}
		if len(c.Kinds) != c.Layers || c.Rotary > c.HeadDim || c.Rotary > c.IndexDim || c.TopK > c.Experts || c.Heads%c.KVHeads != 0 {
			t.Errorf("accepted %+v", c)
		}
		if len(c.PLELayers) > 0 && (c.EOS < 0 || c.NgramDim() < 1) {
			t.Errorf("accepted %+v", c)
		}
		_ = c.Digest()
		if _, err := weights.OpenBytes("fuzz", data, make([]byte, 8)); err == nil {
			t.Error("a checkpoint without tensors was opened")
		}
	})
}
