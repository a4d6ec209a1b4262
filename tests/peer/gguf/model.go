package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lector/engine/weights"
)

const trunk = "model.language_model."

// model reads a checkpoint in the order in which the file lists it; the first error stays.
type model struct {
	*weights.Checkpoint
	cfg  *weights.Config
	kind kind // of matrices that may be quantised
	file file
	err  error
}

// describe lists everything that llama.cpp wants to know.
func describe(c *weights.Checkpoint, k kind) (*file, error) {
	m := &model{Checkpoint: c, cfg: c.Config(), kind: k}
	cfg := m.cfg
	switch {
	case cfg.DeltaKeyDim != cfg.DeltaValueDim:
		return nil, fmt.Errorf("key heads of %d and value heads of %d: llama.cpp takes equal ones", cfg.DeltaKeyDim, cfg.DeltaValueDim)
	case len(cfg.PLELayers) != 1 || cfg.PLEDim != cfg.Hidden || cfg.Kinds[cfg.PLELayers[0]] != weights.Linear:
		return nil, errors.New("llama.cpp takes one n-gram embedding, as wide as the model, on a DeltaNet layer")
	case c.Packed() != nil:
		return nil, errors.New("it is packed: convert the checkpoint that it was packed from")
	}
	m.settings()
	m.matrix("token_embd.weight", trunk+"embed_tokens", cfg.Vocab, cfg.Hidden)
	m.matrix("output.weight", "lm_head", cfg.Vocab, cfg.Hidden)
	m.mixer("output_hc", trunk+"hyper_connection_mixer", false)
	for i, kind := range cfg.Kinds {
		layer, to := fmt.Sprintf("%slayers.%d", trunk, i), fmt.Sprintf("blk.%d.", i)
		m.mixer(to+"hc_attn", layer+".attn_hyper_connection", true)
		m.mixer(to+"hc_ffn", layer+".mlp_hyper_connection", true)
		if kind == weights.Linear {
			m.deltaNet(to, layer+".linear_attn.")
		} else {
			m.attention(to, layer+".self_attn.")
		}
		m.mixture(to, layer)
		if at := cfg.PLEIndex(i); at >= 0 {
			m.ngrams(to, layer, at)
		}
	}
	return &m.file, m.err
}

// settings writes the shape, and a vocabulary of numbered words: prompts are given as ids.
func (m *model) settings() {
	f, c := &m.file, m.cfg
	f.str("general.architecture", "qwen4exp")
	f.str("general.name", m.Name())
	f.number("general.alignment", alignment)
	const a = "qwen4exp."
	for _, s := range []struct {
		name string
		v    int
	}{
		{"block_count", c.Layers}, {"context_length", c.MaxTokens}, {"embedding_length", c.Hidden}, {"vocab_size", c.Vocab},
		{"feed_forward_length", c.ExpertInner}, {"expert_feed_forward_length", c.ExpertInner},
		{"expert_shared_feed_forward_length", c.SharedInner}, {"expert_count", c.Experts}, {"expert_used_count", c.TopK},
		{"attention.head_count", c.Heads}, {"attention.head_count_kv", c.KVHeads},
		{"attention.key_length", c.HeadDim}, {"attention.value_length", c.HeadDim}, {"rope.dimension_count", c.Rotary},
		{"full_attention_interval", 4}, {"ssm.conv_kernel", c.DeltaTaps}, {"ssm.state_size", c.DeltaKeyDim},
		{"ssm.group_count", c.DeltaKeyHeads}, {"ssm.time_step_rank", c.DeltaValueHeads}, {"ssm.inner_size", c.DeltaValueHeads * c.DeltaValueDim},
		{"hyper_connection.count", c.Streams}, {"hyper_connection.low_rank", c.LowRank},
		{"attention.indexer.head_count", c.IndexHeads}, {"attention.indexer.key_length", c.IndexDim}, {"attention.indexer.top_k", c.IndexBudget},
		{"ple.ngram_size", c.NgramSize}, {"ple.heads_per_ngram", c.NgramHeads}, {"ple.conv_kernel", c.PLETaps},
		{"ple.eos_token_id", int(c.EOS)}, {"embedding_length_per_layer_input", c.NgramDim()},
	} {
		f.number(a+s.name, s.v)
	}
	f.float(a+"attention.layer_norm_rms_epsilon", c.Eps)
	f.float(a+"rope.freq_base", c.Theta)
	pairs := c.Rotary / 2 // taken in turns by three axes, which are one for text
	list(f, a+"rope.dimension_sections", typeInt32, []int{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0})
	ratios := make([]int, c.Layers)
	for i, k := range c.Kinds {
		if k == weights.Attention {
			ratios[i] = c.IndexRatio
		}
	}
	list(f, a+"attention.compress_ratios", typeUint32, ratios)
	list(f, a+"ple.layers", typeUint32, c.PLELayers)
	words := make([]string, c.Vocab)
	for i := range words {
		words[i] = fmt.Sprint("t", i)
	}
	f.str("tokenizer.ggml.model", "gpt2")
	f.str("tokenizer.ggml.pre", "qwen2")
	f.strings("tokenizer.ggml.tokens", words)
	list(f, "tokenizer.ggml.token_type", typeInt32, slices.Repeat([]int{1}, c.Vocab))
	f.strings("tokenizer.ggml.merges", []string{"t 0"})
	f.number("tokenizer.ggml.eos_token_id", int(c.EOS))
	f.no("tokenizer.ggml.add_bos_token")
}

func (m *model) note(err error) {
	if m.err == nil {
		m.err = err
	}
}

// add lists rows [rows, cols], of matrices one after another where outer dims are given. Rows are quantised when they
// may be and consist of whole blocks.
func (m *model) add(name string, quantised bool, cols int, outer []int, row func(i int) []float32) {
	t := tensor{name: name, dims: []int{cols}, rows: 1, cols: cols, row: row}
	for _, n := range slices.Backward(outer) {
		t.dims = append(t.dims, n)
		t.rows *= n
	}
	if quantised && cols%block == 0 {
		t.kind = m.kind
	}
	m.file.tensors = append(m.file.tensors, t)
}

// read is a matrix of the checkpoint as a function of its row.
func (m *model) read(name string, out, in int) func(i int) []float32 {
	t, err := m.Matrix(name, out, in)
	m.note(err)
	if t.Quant != nil {
		m.note(fmt.Errorf("tensor %s is quantised: convert the checkpoint that it was made from", name))
	}
	return reader(t)
}

func reader(t weights.Tensor) func(i int) []float32 {
	var row []float32
	return func(i int) []float32 {
		row = t.AppendRow(row[:0], i)
		return row
	}
}

func (m *model) matrix(to, name string, out, in int) {
	m.add(to, true, in, []int{out}, m.read(name, out, in))
}

// permuted takes row order[i] as row i.
func (m *model) permuted(to, name string, in int, order []int) {
	row := m.read(name, len(order), in)
	m.add(to, true, in, []int{len(order)}, func(i int) []float32 { return row(order[i]) })
}

// plain keeps a matrix in float32.
func (m *model) plain(to, name string, out, in int) {
	m.add(to, false, in, []int{out}, m.read(name, out, in))
}

func (m *model) values(to string, v []float32) {
	m.add(to, false, len(v), nil, func(int) []float32 { return v })
}

func (m *model) norm(to, name string, n int) {
	v, err := m.Norm(name, n)
	m.note(err)
	m.values(to, v)
}

func (m *model) mixer(to, from string, inject bool) {
	c := m.cfg
	m.norm(to+"_norm.weight", from+".hc_norm", c.Wide())
	m.matrix(to+"_down.weight", from+".input_mix_weight_down", c.LowRank, c.Wide())
	m.matrix(to+"_up.weight", from+".input_mix_weight_up", c.Wide(), c.LowRank)
	if inject {
		m.plain(to+"_inject.weight", from+".block_inject_weight", c.Streams, c.Wide())
	}
}

// deltaNet orders value heads as llama.cpp does, where head j goes with key head j mod Hk: first the first value head
// of every key head, then the second of every one.
func (m *model) deltaNet(to, from string) {
	c := m.cfg
	each, dim, keys := c.DeltaValueHeads/c.DeltaKeyHeads, c.DeltaValueDim, c.DeltaKeyHeads*c.DeltaKeyDim
	heads := make([]int, 0, c.DeltaValueHeads)
	for r := range each {
		for k := range c.DeltaKeyHeads {
			heads = append(heads, k*each+r)
		}
	}
	values := make([]int, 0, len(heads)*dim)
	for _, h := range heads {
		for d := range dim {
			values = append(values, h*dim+d)
		}
	}
	channels := make([]int, 0, c.DeltaChannels())
	for i := range 2 * keys {
		channels = append(channels, i)
	}
	for _, v := range values {
		channels = append(channels, 2*keys+v)
	}
	m.permuted(to+"attn_qkv.weight", from+"in_proj_qkv", c.Hidden, channels)
	m.permuted(to+"attn_gate.weight", from+"in_proj_z", c.Hidden, values)
	m.permuted(to+"ssm_beta.weight", from+"in_proj_b", c.Hidden, heads)
	m.permuted(to+"ssm_alpha.weight", from+"in_proj_a", c.Hidden, heads)
	conv, err := m.Conv(from+"conv1d", c.DeltaChannels(), c.DeltaTaps)
	m.note(err)
	m.add(to+"ssm_conv1d.weight", false, c.DeltaTaps, []int{len(channels)}, func(i int) []float32 {
		return conv[channels[i]*c.DeltaTaps:][:c.DeltaTaps]
	})
	rate, err := m.Vector(from+"A_log", len(heads))
	m.note(err)
	for i, v := range rate {
		rate[i] = float32(-math.Exp(float64(v)))
	}
	bias, err := m.Vector(from+"dt_bias", len(heads))
	m.note(err)
	m.values(to+"ssm_a", pick(rate, heads))
	m.values(to+"ssm_dt.bias", pick(bias, heads))
	m.norm(to+"ssm_norm.weight", from+"norm", dim)
	out := m.read(from+"out_proj", c.Hidden, len(values))
	m.add(to+"ssm_out.weight", true, len(values), []int{c.Hidden}, func(i int) []float32 { return pick(out(i), values) })
}

func pick(v []float32, order []int) []float32 {
	if len(v) != len(order) {
		return nil
	}
	out := make([]float32, len(order))
	for i, from := range order {
		out[i] = v[from]
	}
	return out
}

func (m *model) attention(to, from string) {
	c := m.cfg
	q, kv, index := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.IndexHeads*c.IndexDim
	m.matrix(to+"attn_q.weight", from+"q_proj", 2*q, c.Hidden)
	m.matrix(to+"attn_k.weight", from+"k_proj", kv, c.Hidden)
	m.matrix(to+"attn_v.weight", from+"v_proj", kv, c.Hidden)
	m.matrix(to+"attn_output.weight", from+"o_proj", c.Hidden, q)
	m.norm(to+"attn_q_norm.weight", from+"q_norm", c.HeadDim)
	m.norm(to+"attn_k_norm.weight", from+"k_norm", c.HeadDim)
	m.norm(to+"indexer.q_norm.weight", from+"indexer.q_layernorm", c.IndexDim)
	m.norm(to+"indexer.k_norm.weight", from+"indexer.k_layernorm", c.IndexDim)
	both := m.read(from+"indexer.index_qk_proj", index+c.IndexDim, c.Hidden)
	m.add(to+"indexer.q_proj.weight", true, c.Hidden, []int{index}, both)
	m.add(to+"indexer.k_proj.weight", true, c.Hidden, []int{c.IndexDim}, func(i int) []float32 { return both(index + i) })
}

func (m *model) mixture(to, layer string) {
	c, from := m.cfg, layer+".mlp."
	m.plain(to+"ffn_gate_inp.weight", from+"gate", c.Experts, c.Hidden)
	score := m.read(from+"shared_expert_gate", 1, c.Hidden)
	m.add(to+"ffn_gate_inp_shexp.weight", false, c.Hidden, nil, score)
	experts, err := m.Experts(layer, c.Experts, c.ExpertInner, c.Hidden)
	m.note(err)
	for part, p := range []struct {
		name    string
		out, in int
		shared  [2]int
	}{
		{"gate", c.ExpertInner, c.Hidden, [2]int{c.SharedInner, c.Hidden}},
		{"up", c.ExpertInner, c.Hidden, [2]int{c.SharedInner, c.Hidden}},
		{"down", c.Hidden, c.ExpertInner, [2]int{c.Hidden, c.SharedInner}},
	} {
		var row []float32
		m.add(to+"ffn_"+p.name+"_exps.weight", true, p.in, []int{c.Experts, p.out}, func(i int) []float32 {
			gate, up, down := experts.At(i / p.out)
			row = [...]weights.Tensor{gate, up, down}[part].AppendRow(row[:0], i%p.out)
			return row
		})
		m.matrix(to+"ffn_"+p.name+"_shexp.weight", from+"shared_expert."+p.name+"_proj", p.shared[0], p.shared[1])
	}
}

func (m *model) ngrams(to, layer string, at int) {
	c, from := m.cfg, layer+".ple."
	m.matrix(to+"ple_key.weight", from+"key_proj", c.Wide(), c.PLEDim)
	m.matrix(to+"ple_value.weight", from+"value_proj", c.Hidden, c.PLEDim)
	for _, s := range []string{"key", "query", "conv"} {
		m.norm(to+"ple_norm_"+s+".weight", from+"norm_"+s, c.Wide())
	}
	conv, err := m.Conv(from+"conv1d", c.Wide(), c.PLETaps)
	m.note(err)
	m.add(to+"ple_conv1d.weight", false, c.PLETaps, []int{c.Wide()}, func(i int) []float32 { return conv[i*c.PLETaps:][:c.PLETaps] })
	hash, err := m.Ngram(layer, at)
	m.note(err)
	list(&m.file, "qwen4exp.ple.layer_multipliers", typeUint64, hash.Multipliers)
	list(&m.file, "qwen4exp.ple.head_offsets", typeUint64, hash.Offsets)
	list(&m.file, "qwen4exp.ple.head_vocab_sizes", typeUint64, hash.Vocab)
	shards, err := m.NgramTable(layer, c.NgramShards, int(hash.Rows), c.NgramDim())
	m.note(err)
	each := int(hash.Rows) / c.NgramShards
	rows := make([]func(i int) []float32, len(shards))
	for i, s := range shards {
		rows[i] = reader(s)
	}
	m.add("per_layer_token_embd.weight", true, c.NgramDim(), []int{int(hash.Rows)}, func(i int) []float32 { return rows[i/each](i % each) })
}
