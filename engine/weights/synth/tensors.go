package synth

import (
	"encoding/binary"
	"fmt"
	"math"

	"lector/engine/weights"
)

// tensor is one tensor of the checkpoint, under its released name.
type tensor struct {
	name   string
	shape  []int
	values values
	fixed  []int64 // instead of values: an I64 tensor
}

func (t *tensor) dtype() weights.DType {
	if t.fixed != nil {
		return weights.I64
	}
	return weights.BF16
}

// bytes is the stored size.
func (t *tensor) bytes() int64 {
	n := int64(t.dtype().Bits() / 8)
	for _, s := range t.shape {
		n *= int64(s)
	}
	return n
}

// fill writes the bytes from offset on; offset is a multiple of a value's width.
func (t *tensor) fill(dst []byte, offset int64) {
	if t.fixed == nil {
		t.values.fill(dst, offset/2)
		return
	}
	for i := range len(dst) / 8 {
		binary.LittleEndian.PutUint64(dst[8*i:], uint64(t.fixed[int(offset/8)+i]))
	}
}

// network lists tensors in the order of the computation.
type network struct {
	cfg  *weights.Config
	seed uint64
	list []*tensor
}

// tensors lists every tensor of a model.
func tensors(cfg *weights.Config, seed uint64) ([]*tensor, error) {
	n := &network{cfg: cfg, seed: seed}
	n.draw("model.language_model.embed_tokens.weight", normal, 1, cfg.Vocab, cfg.Hidden)
	for i, kind := range cfg.Kinds {
		layer := fmt.Sprintf("model.language_model.layers.%d.", i)
		if l := cfg.PLEIndex(i); l >= 0 {
			if err := n.ple(layer+"ple.", l); err != nil {
				return nil, err
			}
		}
		n.layer(layer, kind)
	}
	n.mixer("model.language_model.hyper_connection_mixer.", false)
	n.matrix("lm_head.weight", cfg.Vocab, cfg.Hidden)
	if cfg.MTPLayers > 0 {
		n.norm("mtp.pre_fc_norm_embedding.weight", cfg.Hidden)
		n.norm("mtp.pre_fc_norm_hidden.weight", cfg.Wide())
		n.matrix("mtp.fc_embedding.weight", cfg.Hidden, cfg.Hidden)
		n.matrix("mtp.fc_hidden.weight", cfg.Hidden, cfg.Hidden)
		n.layer("mtp.layers.0.", weights.Attention)
		n.mixer("mtp.hyper_connection_mixer.", false)
	}
	return n.list, nil
}

func (n *network) draw(name string, k kind, scale float64, shape ...int) *tensor {
	t := &tensor{name: name, shape: shape, values: values{stream: streamOf(n.seed, name), kind: k, scale: float32(scale)}}
	n.list = append(n.list, t)
	return t
}

// matrix keeps the size of what goes through it, a little above so that it does not fade over depth.
func (n *network) matrix(name string, shape ...int) {
	n.draw(name, normal, 1.2/math.Sqrt(float64(shape[len(shape)-1])), shape...)
}

// norm is zero-centred, as the release stores it.
func (n *network) norm(name string, size int) { n.draw(name, normal, 0.2, size) }

func (n *network) layer(layer string, kind weights.LayerKind) {
	c := n.cfg
	n.mixer(layer+"attn_hyper_connection.", true)
	if kind == weights.Linear {
		n.deltaNet(layer + "linear_attn.")
	} else {
		n.attention(layer + "self_attn.")
	}
	n.mixer(layer+"mlp_hyper_connection.", true)
	mlp := layer + "mlp."
	n.draw(mlp+"gate.weight", normal, 3/math.Sqrt(float64(c.Hidden)), c.Experts, c.Hidden)
	n.matrix(mlp+"experts.gate_up_proj", c.Experts, 2*c.ExpertInner, c.Hidden)
	n.matrix(mlp+"experts.down_proj", c.Experts, c.Hidden, c.ExpertInner)
	n.matrix(mlp+"shared_expert.gate_proj.weight", c.SharedInner, c.Hidden)
	n.matrix(mlp+"shared_expert.up_proj.weight", c.SharedInner, c.Hidden)
	n.matrix(mlp+"shared_expert.down_proj.weight", c.Hidden, c.SharedInner)
	n.matrix(mlp+"shared_expert_gate.weight", 1, c.Hidden)
}

func (n *network) mixer(base string, inject bool) {
	c := n.cfg
	n.norm(base+"hc_norm.weight", c.Wide())
	n.matrix(base+"input_mix_weight_down.weight", c.LowRank, c.Wide())
	n.matrix(base+"input_mix_weight_up.weight", c.Wide(), c.LowRank)
	if inject {
		n.matrix(base+"block_inject_weight.weight", c.Streams, c.Wide())
	}
}

func (n *network) deltaNet(base string) {
	c := n.cfg
	wide := c.DeltaValueHeads * c.DeltaValueDim
	n.matrix(base+"in_proj_qkv.weight", c.DeltaChannels(), c.Hidden)
	n.matrix(base+"in_proj_z.weight", wide, c.Hidden)
	n.matrix(base+"in_proj_b.weight", c.DeltaValueHeads, c.Hidden)
	n.matrix(base+"in_proj_a.weight", c.DeltaValueHeads, c.Hidden)
	n.draw(base+"conv1d.weight", normal, 0.5, c.DeltaChannels(), 1, c.DeltaTaps)
	n.draw(base+"A_log", decays, 0, c.DeltaValueHeads)
	n.draw(base+"dt_bias", around, 0.5, c.DeltaValueHeads).values.mean = -1
	n.draw(base+"norm.weight", around, 0.2, c.DeltaValueDim).values.mean = 1
	n.matrix(base+"out_proj.weight", c.Hidden, wide)
}

func (n *network) attention(base string) {
	c := n.cfg
	n.matrix(base+"q_proj.weight", 2*c.Heads*c.HeadDim, c.Hidden)
	n.matrix(base+"k_proj.weight", c.KVHeads*c.HeadDim, c.Hidden)
	n.matrix(base+"v_proj.weight", c.KVHeads*c.HeadDim, c.Hidden)
	n.matrix(base+"o_proj.weight", c.Hidden, c.Heads*c.HeadDim)
	n.norm(base+"q_norm.weight", c.HeadDim)
	n.norm(base+"k_norm.weight", c.HeadDim)
	n.matrix(base+"indexer.index_qk_proj.weight", (c.IndexHeads+1)*c.IndexDim, c.Hidden)
	n.norm(base+"indexer.q_layernorm.weight", c.IndexDim)
	n.norm(base+"indexer.k_layernorm.weight", c.IndexDim)
}

func (n *network) ple(base string, l int) error {
	c := n.cfg
	hash, err := c.NgramHash(l)
	if err != nil {
		return err
	}
	n.matrix(base+"key_proj.weight", c.Wide(), c.PLEDim)
	n.matrix(base+"value_proj.weight", c.Hidden, c.PLEDim)
	for _, name := range []string{"norm_key", "norm_query", "norm_conv"} {
		n.norm(base+name+".weight", c.Wide())
	}
	n.draw(base+"conv1d.weight", normal, 0.5, c.Wide(), 1, c.PLETaps)
	table := base + "ple_embedding."
	for _, constant := range []struct {
		name string
		list []int64
	}{{"layer_multipliers", hash.Multipliers}, {"ngram_heads_offsets", hash.Offsets}, {"ngram_heads_vocab_sizes", hash.Vocab}} {
		n.list = append(n.list, &tensor{name: table + constant.name, shape: []int{len(constant.list)}, fixed: constant.list})
	}
	for s := range c.NgramShards {
		n.draw(fmt.Sprintf("%sngram_embedding.shard_%d.weight", table, s), normal, 1, int(hash.Rows)/c.NgramShards, c.NgramDim())
	}
	return nil
}
