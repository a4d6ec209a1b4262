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
	if f.stepsFew() {
		m.step(f, st)
		return
	}
	be.Linear(f.raw, f.x, m.qkv)
	be.Linear(f.zg, f.x, m.z)
	be.Linear(f.a, f.x, m.a)
	be.Linear(f.b, f.x, m.b)
	be.Conv(f.qkv, f.raw, st.conv, m.conv, 1, true)
	be.UnitHeads(f.qkv, d.queryHeads(), d.queryScale)
	be.UnitHeads(f.qkv, d.keyHeads(), 1)
	be.DeltaGates(f.a, f.b, f.a, f.b, m.aLog, m.dtBias)
	st.scan(f, f.o, deltaRows{qkv: f.qkv, g: f.a, beta: f.b})
	be.ShiftTail(st.conv, f.raw)
	st.kept.keep(f)
	be.GatedNorm(f.o, f.zg, m.norm, d.Eps, d.GateSiLU)
	be.Linear(f.y, f.o, m.out)
}

// stepsFew says that the pass takes every DeltaNet forward by step.
func (f *pass) stepsFew() bool { return f.few != nil && f.dims.Cell == 0 }

// step is forward of few rows, where a state is never rounded. It saves the state as it goes.
func (m *deltaNet) step(f *pass, st *deltaState) {
	d := f.dims
	f.meet(f.raw, &m.qkv).meet(f.zg, &m.z).meet(f.a, &m.a).meet(f.b, &m.b).multiply(f.x)
	exchanged := f.few.StepDelta(ops.DeltaStep{
		O: f.o, QKV: f.qkv, Raw: f.raw, Tail: st.conv, Z: f.zg, A: f.a, B: f.b, S: st.s, OldS: st.oldS, OldTail: st.oldConv, Dims: d.Delta,
		Conv: m.conv, ALog: m.aLog, DtBias: m.dtBias, Norm: m.norm, QueryScale: d.queryScale, Eps: d.Eps, SiLU: d.GateSiLU,
	})
	if exchanged {
		st.exchange()
	}
	st.saved = true
	st.kept.keep(f)
	f.be.Linear(f.y, f.o, m.out)
}

// replay advances st, put back to before a batch, by the batch's first rows: the same scan over the same
// inputs, so the bits are those of having decoded only them.
func (st *deltaState) replay(f *pass, rows int) {
	k := st.kept
	st.scan(f, f.o.Slice(0, rows), k)
	f.be.ShiftTail(st.conv, k.raw.Slice(0, rows))
}

// scan advances S by the rows of o, which stand at f.pos. Where S is held in bfloat16 it is rounded after every cell:
// at places that the tokens alone decide, so that neither a chunk's cut nor a stop there changes what follows.
func (st *deltaState) scan(f *pass, o ops.Tensor, in deltaRows) {
	for from := 0; from < o.Rows; {
		to := o.Rows
		if cell := f.dims.Cell; cell > 0 {
			to = min(to, (f.pos+from)/cell*cell+cell-f.pos)
		}
		f.be.DeltaScan(o.Slice(from, to), in.qkv.Slice(from, to), in.g.Slice(from, to), in.beta.Slice(from, to), st.s, f.dims.Delta)
		if f.dims.rounded(f.pos + to) {
			f.be.RoundState(st.s, st.loss)
		}
		from = to
	}
}

// rounded says that a recurrent state holds bfloat16 numbers after pos tokens.
func (d *dims) rounded(pos int) bool { return d.Cell > 0 && pos > 0 && pos%d.Cell == 0 }
