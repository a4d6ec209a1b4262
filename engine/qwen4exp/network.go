package qwen4exp

import (
	"lector/engine/ops"
	"lector/engine/stream"
)

// network is the whole model, bound to its weights: immutable and shared by all sequences.
type network struct {
	dims
	embed  ops.Matrix // E [V, h]
	layers []layer
	final  hyper // gated read without injection
	head   ops.Matrix
	mtp    *draftHead  // nil without one
	record stream.View // operands of a packed record

	arrange func(layer, expert int, record []byte) error // for the backend, once it is read; nil: it stays as it is stored
}

// layer is one decoder layer: an optional PLE in front, a mixer, a mixture of experts.
type layer struct {
	index   int // in the trunk; the draft head's layer has Layers
	ple     *ple
	readMix hyper
	delta   *deltaNet  // one of delta and attn
	attn    *attention // is set
	readMoE hyper
	moe     moe
}

// trunk runs the layers over the chunk: f.wide holds the embedding replicated on entry and the residual
// after the last layer on return.
//
//	wide_0 = E[t], n times;  wide_{i+1} = layer_i(wide_i)
func (m *network) trunk(f *pass, st *state) error {
	m.gather(f)
	defer f.endGather()
	f.be.Embed(f.x, m.embed, f.ids)
	f.be.Replicate(f.wide, f.x)
	f.view.wide(0, f)
	for i := range m.layers[:f.layerCap(len(m.layers))] {
		if err := m.layers[i].forward(f, &st.layers[i]); err != nil {
			return err
		}
		f.view.wide(i+1, f)
	}
	f.flush()
	return f.enter(ops.PartOther)
}

// forward advances the residual by one layer.
//
//	wide += PLE(wide)
//	(x, inj) = read(wide);  wide[g] += inj[g] * mixer(x)
//	(x, inj) = read(wide);  wide[g] += inj[g] * MoE(x)
//
// Both injections are deferred to the read that follows, that of the next layer's included, or to a flush. Nothing here waits
// for a device: the mixture does, once, where the host must know the routing.
func (l *layer) forward(f *pass, st *layerState) error {
	part := ops.PartAttention
	if l.delta != nil {
		part = ops.PartDelta
	}
	if err := f.enter(part); err != nil {
		return err
	}
	if l.ple != nil {
		f.flush()
		if err := l.ple.forward(f, st.ple); err != nil {
			return err
		}
	}
	l.readMix.read(f, true)
	if err := l.mix(f, st); err != nil {
		return err
	}
	f.inject(f.y)
	l.readMoE.read(f, true)
	if err := l.moe.forward(f, l.index); err != nil {
		return err
	}
	f.inject(f.y)
	return nil
}

// mix runs the layer's mixer from f.x into f.y.
func (l *layer) mix(f *pass, st *layerState) error {
	switch {
	case f.skips("mixer"):
		return f.zero(f.y)
	case l.delta != nil:
		l.delta.forward(f, st.delta)
	default:
		l.attn.forward(f, st.attn, l.index)
	}
	return nil
}

// logits reads the residual through the final mixer and the head: y [rows of wide, V].
func (m *network) logits(f *pass, y ops.Tensor) {
	m.final.read(f, false)
	f.be.Linear(y, f.x, m.head)
}
