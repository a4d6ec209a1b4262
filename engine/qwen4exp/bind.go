package qwen4exp

import (
	"fmt"
	"slices"

	"lector/engine/ops"
	"lector/engine/weights"
)

// Prefixes of the released tensor names.
const (
	trunkPrefix = "model.language_model."
	mtpPrefix   = "mtp."
)

// binder finds tensors by their released names; the first error stays.
type binder struct {
	c       *weights.Checkpoint
	d       *dims
	own     copies
	arrange ops.Arranger // nil for a backend that takes records as they are stored
	err     error
}

// copies gives matrices a place for a backend's own copy, as long as their bytes are left.
type copies struct {
	backend ops.Repacker // nil for one that wants none
	left    int          // bytes
}

func newCopies(be ops.Backend, bytes int) copies {
	r, _ := be.(ops.Repacker)
	return copies{r, bytes}
}

// place is a place for a copy of m, or nil.
func (c *copies) place(m ops.Matrix) *ops.Panels {
	if c.backend == nil {
		return nil
	}
	n := c.backend.PanelBytes(m)
	if n == 0 || n > c.left {
		return nil
	}
	c.left -= n
	return new(ops.Panels)
}

// bind builds the network over the checkpoint's tensors, which stay as stored.
func bind(c *weights.Checkpoint, norm HiddenNorm, be ops.Backend, copied int) (*network, error) {
	cfg := c.Config()
	net := &network{dims: dimsOf(cfg)}
	b := &binder{c: c, d: &net.dims, own: newCopies(be, copied)}
	b.arrange, _ = be.(ops.Arranger)
	net.record = b.record
	if b.arrange != nil {
		net.arrange = b.arrangeRecord
	}
	net.embed = b.table(trunkPrefix+"embed_tokens", net.Vocab, net.Hidden)
	net.head = net.embed
	if cfg.Tied {
		net.head.Panels = b.own.place(net.head)
	} else {
		net.head = b.matrix("lm_head", net.Vocab, net.Hidden)
	}
	net.final = b.hyper(trunkPrefix+"hyper_connection_mixer.", false)
	for i, kind := range cfg.Kinds {
		l := b.layer(fmt.Sprintf("%slayers.%d", trunkPrefix, i), i, kind)
		if at := slices.Index(cfg.PLELayers, i); at >= 0 {
			l.ple = b.ple(fmt.Sprintf("%slayers.%d", trunkPrefix, i), at)
		}
		net.layers = append(net.layers, l)
	}
	if cfg.MTPLayers > 0 {
		net.mtp = b.draftHead(norm, cfg.Layers)
	}
	return net, b.err
}

func (b *binder) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

// matrix is what rows are multiplied with.
func (b *binder) matrix(name string, out, in int) ops.Matrix {
	return b.copied(b.table(name, out, in))
}

// copied gives m a place for a backend's own copy.
func (b *binder) copied(m ops.Matrix) ops.Matrix {
	if b.err == nil {
		m.Panels = b.own.place(m)
	}
	return m
}

// table is a matrix whose rows are read one by one.
func (b *binder) table(name string, out, in int) ops.Matrix {
	t, err := b.c.Matrix(name, out, in)
	b.note(err)
	if err != nil {
		return ops.Matrix{}
	}
	return b.stored(t, out, in)
}

// precise is matrix for what decides: its products are in float32 in every class.
func (b *binder) precise(name string, out, in int) ops.Matrix {
	m := b.table(name, out, in)
	m.Precise = true
	return b.copied(m)
}

// stored refers to a tensor as the operations do. Quantised shapes are the logical ones.
func (b *binder) stored(t weights.Tensor, out, in int) ops.Matrix {
	m := ops.Matrix{Name: t.Name, Out: out, In: in, Data: t.Data}
	kind := t.DType
	if q := t.Quant; q != nil {
		m.Format, m.Bits, m.Group, m.Scales, m.Biases = ops.Affine, q.Bits, q.Group, q.Scales, q.Biases
		m.Side = b.format(t.Name, q.Side)
		return m
	}
	m.Format = b.format(t.Name, kind)
	return m
}

func (b *binder) format(name string, t weights.DType) ops.Format {
	switch t {
	case "F32":
		return ops.F32
	case "BF16":
		return ops.BF16
	case "F16":
		return ops.F16
	}
	b.note(fmt.Errorf("tensor %s is stored as %s: lector computes with F32, BF16, F16 and MLX affine weights", name, t))
	return ops.F32
}

func (b *binder) norm(name string, n int) []float32 {
	v, err := b.c.Norm(name, n)
	b.note(err)
	return v
}

func (b *binder) vector(name string, n int) []float32 {
	v, err := b.c.Vector(name, n)
	b.note(err)
	return v
}

func (b *binder) conv(name string, channels, taps int) []float32 {
	v, err := b.c.Conv(name, channels, taps)
	b.note(err)
	return v
}

func (b *binder) hyper(prefix string, inject bool) hyper {
	d := b.d
	h := hyper{
		norm: b.norm(prefix+"hc_norm", d.Wide),
		down: b.matrix(prefix+"input_mix_weight_down", d.LowRank, d.Wide),
		up:   b.matrix(prefix+"input_mix_weight_up", d.Wide, d.LowRank),
	}
	if inject {
		h.inject = b.matrix(prefix+"block_inject_weight", d.Streams, d.Wide)
	}
	return h
}

func (b *binder) layer(prefix string, index int, kind weights.LayerKind) layer {
	l := layer{
		index:   index,
		readMix: b.hyper(prefix+".attn_hyper_connection.", true),
		readMoE: b.hyper(prefix+".mlp_hyper_connection.", true),
		moe:     b.moe(prefix),
	}
	if kind == weights.Linear {
		l.delta = b.deltaNet(prefix + ".linear_attn.")
	} else {
		l.attn = b.attention(prefix + ".self_attn.")
	}
	return l
}

func (b *binder) deltaNet(prefix string) *deltaNet {
	d := b.d
	values := d.Delta.Hv * d.Delta.Dv
	return &deltaNet{
		qkv:    b.matrix(prefix+"in_proj_qkv", d.Channels, d.Hidden),
		z:      b.matrix(prefix+"in_proj_z", values, d.Hidden),
		a:      b.precise(prefix+"in_proj_a", d.Delta.Hv, d.Hidden),
		b:      b.precise(prefix+"in_proj_b", d.Delta.Hv, d.Hidden),
		conv:   b.conv(prefix+"conv1d", d.Channels, d.Taps),
		aLog:   b.vector(prefix+"A_log", d.Delta.Hv),
		dtBias: b.vector(prefix+"dt_bias", d.Delta.Hv),
		norm:   b.norm(prefix+"norm", d.Delta.Dv),
		out:    b.matrix(prefix+"out_proj", d.Hidden, values),
	}
}

func (b *binder) attention(prefix string) *attention {
	d := b.d
	return &attention{
		q:      b.matrix(prefix+"q_proj", 2*d.Attn.Hq*d.Attn.Hd, d.Hidden),
		k:      b.matrix(prefix+"k_proj", d.Attn.Hkv*d.Attn.Hd, d.Hidden),
		v:      b.matrix(prefix+"v_proj", d.Attn.Hkv*d.Attn.Hd, d.Hidden),
		out:    b.matrix(prefix+"o_proj", d.Hidden, d.Attn.Hq*d.Attn.Hd),
		qNorm:  b.norm(prefix+"q_norm", d.Attn.Hd),
		kNorm:  b.norm(prefix+"k_norm", d.Attn.Hd),
		index:  b.matrix(prefix+"indexer.index_qk_proj", (d.Index.N+1)*d.Index.Dim, d.Hidden),
		iqNorm: b.norm(prefix+"indexer.q_layernorm", d.Index.Dim),
		ikNorm: b.norm(prefix+"indexer.k_layernorm", d.Index.Dim),
	}
}

func (b *binder) moe(layer string) moe {
	d, prefix := b.d, layer+".mlp."
	m := moe{
		router:      b.precise(prefix+"gate", d.Experts, d.Hidden),
		sharedScore: b.matrix(prefix+"shared_expert_gate", 1, d.Hidden),
		sharedGate:  b.matrix(prefix+"shared_expert.gate_proj", d.SharedInner, d.Hidden),
		sharedUp:    b.matrix(prefix+"shared_expert.up_proj", d.SharedInner, d.Hidden),
		sharedDown:  b.matrix(prefix+"shared_expert.down_proj", d.Hidden, d.SharedInner),
	}
	m.experts, m.stored = ops.Experts{N: d.Experts, Inner: d.Inner}, -1
	if p := b.c.Packed(); p != nil {
		m.stored = p.LayerIndex(layer)
		return m
	}
	stored, err := b.c.Experts(layer, d.Experts, d.Inner, d.Hidden)
	b.note(err)
	if err != nil {
		return m
	}
	m.experts.At = func(e int) ops.Expert { return b.expert(stored.At(e)) }
	if d.Experts > 0 {
		m.experts.At(0) // so that an unknown precision is an error of bind
	}
	return m
}

// expert refers to the three matrices of a record.
func (b *binder) expert(gate, up, down weights.Tensor) ops.Expert {
	d := b.d
	return ops.Expert{
		Gate: b.stored(gate, d.Inner, d.Hidden), Up: b.stored(up, d.Inner, d.Hidden), Down: b.stored(down, d.Hidden, d.Inner),
	}
}

// record refers to the matrices of a packed record, which lies in a slot, arranged where the backend has an order for them.
func (b *binder) record(layer, expert int, record []byte) (ops.Expert, error) {
	gate, up, down, err := b.c.Packed().Expert(layer, expert, record)
	if err != nil {
		return ops.Expert{}, err
	}
	e := b.expert(gate, up, down)
	for _, m := range []*ops.Matrix{&e.Gate, &e.Up, &e.Down} {
		if b.arrange != nil {
			m.Tiled = b.arrange.Arranges(m)
		}
	}
	return e, nil
}

// arrangeRecord brings a record that was read into the backend's order.
func (b *binder) arrangeRecord(layer, expert int, record []byte) error {
	e, err := b.record(layer, expert, record)
	if err != nil {
		return err
	}
	for _, m := range []*ops.Matrix{&e.Gate, &e.Up, &e.Down} {
		if m.Tiled > 0 {
			m.Tiled = 0
			b.arrange.Arrange(m)
		}
	}
	return nil
}

func (b *binder) ple(layer string, at int) *ple {
	d, cfg, prefix := b.d, b.c.Config(), layer+".ple."
	m := &ple{
		key:       b.matrix(prefix+"key_proj", d.Wide, d.PLEDim),
		value:     b.matrix(prefix+"value_proj", d.Hidden, d.PLEDim),
		normKey:   b.norm(prefix+"norm_key", d.Wide),
		normQuery: b.norm(prefix+"norm_query", d.Wide),
		normConv:  b.norm(prefix+"norm_conv", d.Wide),
		stored:    -1,
		conv:      b.conv(prefix+"conv1d", d.Wide, d.PLETaps),
	}
	hash, err := b.c.Ngram(layer, at)
	b.note(err)
	if err != nil {
		return m
	}
	m.hash = hash
	dim := d.PLEDim / len(hash.Vocab)
	if p := b.c.Packed(); p != nil {
		m.stored = slices.IndexFunc(p.Manifest().Ngram, func(t weights.PackedTable) bool { return t.Layer == layer })
		m.row = func(t weights.Tensor) ops.Matrix { return b.stored(t, t.Shape[0], dim) }
		m.table = ops.Table{Rows: int(hash.Rows), Dim: dim}
		return m
	}
	shards, err := b.c.NgramTable(layer, cfg.NgramShards, int(hash.Rows), dim)
	b.note(err)
	m.table = ops.Table{Rows: int(hash.Rows), Dim: dim}
	for _, s := range shards {
		m.table.Shards = append(m.table.Shards, b.stored(s, int(hash.Rows)/cfg.NgramShards, dim))
	}
	return m
}

func (b *binder) draftHead(norm HiddenNorm, index int) *draftHead {
	d := b.d
	m := &draftHead{
		normEmbed:   b.norm(mtpPrefix+"pre_fc_norm_embedding", d.Hidden),
		normHidden:  b.norm(mtpPrefix+"pre_fc_norm_hidden", d.Wide),
		hiddenGroup: d.Hidden,
		fcEmbed:     b.matrix(mtpPrefix+"fc_embedding", d.Hidden, d.Hidden),
		fcHidden:    b.matrix(mtpPrefix+"fc_hidden", d.Hidden, d.Hidden),
		layer:       b.layer(mtpPrefix+"layers.0", index, weights.Attention),
		mixer:       b.hyper(mtpPrefix+"hyper_connection_mixer.", false),
	}
	if norm == Flat {
		m.hiddenGroup = d.Wide
	}
	return m
}
