package weights

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// verifier walks the tensors that the config calls for.
type verifier struct {
	collection
	norms []*stored
	convs []*stored
}

// verify checks the whole checkpoint and finds out its conventions.
func (c *Checkpoint) verify() error {
	if c.config.MTPLayers > 0 && !c.anyUnder("mtp.") {
		c.config.MTPLayers = 0
		c.found("mtp", "absent", "config.json speaks of a draft head, the files hold none: no drafts")
	}
	v := &verifier{collection: collection{c: c}}
	v.network()
	if v.err != nil {
		return v.err
	}
	c.used, c.list = v.parts, v.list
	slices.SortFunc(c.used, func(a, b *stored) int { return strings.Compare(a.canonical, b.canonical) })
	slices.SortFunc(c.list, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	c.digest = sync.OnceValues(c.weightsDigest)
	if err := c.readNorms(v.norms); err != nil {
		return err
	}
	c.describe(v)
	return c.checkUnused()
}

// anyUnder says whether any tensor's name starts with the prefix.
func (c *Checkpoint) anyUnder(prefix string) bool {
	for name := range c.tensors {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// network names every tensor of the model, in the order of its computation.
func (v *verifier) network() {
	c := v.c.config
	v.matrix("model.language_model.embed_tokens", c.Vocab, c.Hidden)
	for i, kind := range c.Kinds {
		layer := fmt.Sprintf("model.language_model.layers.%d", i)
		if l := c.PLEIndex(i); l >= 0 {
			v.ple(layer, l)
		}
		v.layer(layer, kind)
	}
	v.mixer("model.language_model.hyper_connection_mixer", false)
	if !c.Tied {
		v.matrix("lm_head", c.Vocab, c.Hidden)
	}
	if c.MTPLayers > 0 {
		v.norm("mtp.pre_fc_norm_embedding", c.Hidden)
		v.norm("mtp.pre_fc_norm_hidden", c.Wide())
		v.matrix("mtp.fc_embedding", c.Hidden, c.Hidden)
		v.matrix("mtp.fc_hidden", c.Hidden, c.Hidden)
		v.layer("mtp.layers.0", Attention)
		v.mixer("mtp.hyper_connection_mixer", false)
	}
}

func (v *verifier) layer(layer string, kind LayerKind) {
	v.mixer(layer+".attn_hyper_connection", true)
	if kind == Linear {
		v.deltaNet(layer + ".linear_attn.")
	} else {
		v.attention(layer + ".self_attn.")
	}
	v.mixer(layer+".mlp_hyper_connection", true)
	v.mlp(layer)
}

func (v *verifier) mixer(base string, inject bool) {
	c := v.c.config
	v.norm(base+".hc_norm", c.Wide())
	v.matrix(base+".input_mix_weight_down", c.LowRank, c.Wide())
	v.matrix(base+".input_mix_weight_up", c.Wide(), c.LowRank)
	if inject {
		v.matrix(base+".block_inject_weight", c.Streams, c.Wide())
	}
}

func (v *verifier) deltaNet(base string) {
	c := v.c.config
	values := c.DeltaValueHeads * c.DeltaValueDim
	v.matrix(base+"in_proj_qkv", c.DeltaChannels(), c.Hidden)
	v.matrix(base+"in_proj_z", values, c.Hidden)
	v.matrix(base+"in_proj_b", c.DeltaValueHeads, c.Hidden)
	v.matrix(base+"in_proj_a", c.DeltaValueHeads, c.Hidden)
	v.conv(base+"conv1d", c.DeltaChannels(), c.DeltaTaps)
	v.vector(base+"A_log", c.DeltaValueHeads)
	v.vector(base+"dt_bias", c.DeltaValueHeads)
	v.norm(base+"norm", c.DeltaValueDim)
	v.matrix(base+"out_proj", c.Hidden, values)
}

func (v *verifier) attention(base string) {
	c := v.c.config
	v.matrix(base+"q_proj", 2*c.Heads*c.HeadDim, c.Hidden)
	v.matrix(base+"k_proj", c.KVHeads*c.HeadDim, c.Hidden)
	v.matrix(base+"v_proj", c.KVHeads*c.HeadDim, c.Hidden)
	v.matrix(base+"o_proj", c.Hidden, c.Heads*c.HeadDim)
	v.norm(base+"q_norm", c.HeadDim)
	v.norm(base+"k_norm", c.HeadDim)
	v.matrix(base+"indexer.index_qk_proj", (c.IndexHeads+1)*c.IndexDim, c.Hidden)
	v.norm(base+"indexer.q_layernorm", c.IndexDim)
	v.norm(base+"indexer.k_layernorm", c.IndexDim)
}

func (v *verifier) mlp(layer string) {
	c := v.c.config
	v.matrix(layer+".mlp.gate", c.Experts, c.Hidden)
	v.matrix(layer+".mlp.shared_expert.gate_proj", c.SharedInner, c.Hidden)
	v.matrix(layer+".mlp.shared_expert.up_proj", c.SharedInner, c.Hidden)
	v.matrix(layer+".mlp.shared_expert.down_proj", c.Hidden, c.SharedInner)
	v.matrix(layer+".mlp.shared_expert_gate", 1, c.Hidden)
	if v.err != nil {
		return
	}
	_, experts, _ := v.c.experts(layer, c.Experts, c.ExpertInner, c.Hidden)
	v.join(experts)
}

func (v *verifier) ple(layer string, l int) {
	c := v.c.config
	v.matrix(layer+".ple.key_proj", c.Wide(), c.PLEDim)
	v.matrix(layer+".ple.value_proj", c.Hidden, c.PLEDim)
	v.norm(layer+".ple.norm_key", c.Wide())
	v.norm(layer+".ple.norm_query", c.Wide())
	v.norm(layer+".ple.norm_conv", c.Wide())
	v.conv(layer+".ple.conv1d", c.Wide(), c.PLETaps)
	if v.err != nil {
		return
	}
	hash, constants, err := v.c.ngram(layer, l)
	if err != nil {
		v.err = err
		return
	}
	v.c.hashes = append(v.c.hashes, hash)
	for _, s := range constants {
		v.plain(s, nil)
	}
	if v.c.packed != nil {
		_, v.err = v.c.packedTable(layer, c.NgramShards, int(hash.Rows), c.NgramDim())
		return
	}
	_, table, _ := v.c.ngramTable(layer, c.NgramShards, int(hash.Rows), c.NgramDim())
	v.join(table)
}

func (v *verifier) vector(name string, n int) *stored {
	if v.err != nil {
		return nil
	}
	s, err := v.c.vector(name, n)
	v.plain(s, err)
	return s
}

func (v *verifier) norm(name string, n int) {
	if s := v.vector(name, n); v.err == nil {
		v.norms = append(v.norms, s)
	}
}

func (v *verifier) conv(name string, channels, taps int) {
	if v.err != nil {
		return
	}
	s, err := v.c.conv(name, channels, taps)
	if v.plain(s, err); v.err == nil {
		v.convs = append(v.convs, s)
	}
}
