package qwen4exp

import "lector/engine/ops"

// deltaNet is the Gated DeltaNet mixer.
type deltaNet struct {
	qkv, z, a, b ops.Matrix // [C, h], [Hv*dv, h], [Hv, h], [Hv, h]
	conv         []float32  // [C, K]
	aLog, dtBias []float32  // [Hv]
	norm         []float32  // plain w [dv]
	out          ops.Matrix // [h, Hv*dv]
}

// forward mixes f.x into f.y and advances st by the chunk.
//
//	qkv = silu(conv(Wqkv x));  zg = Wz x;  q, k = unit(q) / sqrt(dk), unit(k)
//	beta = sigmoid(Wb x);  g = exp(-exp(A_log) softplus(Wa x + dt_bias))
//	S = g S;  S += k (beta (v - Sᵀk))ᵀ;  o = Sᵀ q
//	y = Wout (plainRMSNorm(o) * gate(zg))
func (m *deltaNet) forward(f *pass, st *deltaState) {
	be, d := f.be, f.dims
	be.Linear(f.raw, f.x, m.qkv)
	be.Linear(f.zg, f.x, m.z)
	be.Linear(f.a, f.x, m.a)
	be.Linear(f.b, f.x, m.b)
	be.Conv(f.qkv, f.raw, st.conv, m.conv, 1, true)
	be.UnitHeads(f.qkv, d.queryHeads(), d.queryScale)
	be.UnitHeads(f.qkv, d.keyHeads(), 1)
	be.DeltaGates(f.a, f.b, f.a, f.b, m.aLog, m.dtBias)
	be.DeltaScan(f.o, f.qkv, f.a, f.b, st.s, d.Delta)
	be.ShiftTail(st.conv, f.raw)
	st.kept.keep(f)
	be.GatedNorm(f.o, f.zg, m.norm, d.Eps, d.GateSiLU)
	be.Linear(f.y, f.o, m.out)
}

// replay advances st, put back to before a batch, by the batch's first rows: the same scan over the same
// inputs, so the bits are those of having decoded only them.
func (st *deltaState) replay(f *pass, rows int) {
	k := st.kept
	f.be.DeltaScan(f.o.Slice(0, rows), k.qkv.Slice(0, rows), k.g.Slice(0, rows), k.beta.Slice(0, rows), st.s, f.dims.Delta)
	f.be.ShiftTail(st.conv, k.raw.Slice(0, rows))
}
