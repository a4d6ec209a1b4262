package qwen4exp

import "lector/engine/ops"

// moe is the mixture of routed experts and the shared expert.
type moe struct {
	router               ops.Matrix // [E, h]
	experts              ops.Experts
	stored               int        // index of the layer in a packed store, -1 where experts are in memory
	sharedScore          ops.Matrix // [1, h]
	sharedGate, sharedUp ops.Matrix // [inner, h]
	sharedDown           ops.Matrix // [h, inner]
}

// forward sets f.y from f.x.
//
//	prob = softmax(Wr x);  k best, renormalised
//	y = sum over slots w_e Down_e(silu(Gate_e x) * Up_e x) + sigmoid(sg . x) SharedDown(silu(SharedGate x) * SharedUp x)
//
// The choice counts as the block in front of it, as the device is waited for behind it.
func (m *moe) forward(f *pass, layer int) error {
	be, d := f.be, f.dims
	if f.skips("experts") {
		return f.zero(f.y)
	}
	if f.few != nil {
		f.meet(f.router, &m.router).meet(f.score, &m.sharedScore)
		if !f.few.SharesInside() {
			f.meet(f.sGate, &m.sharedGate).meet(f.sUp, &m.sharedUp)
		}
		f.multiply(f.x)
	} else {
		be.Linear(f.router, f.x, m.router)
	}
	route := be.Route(f.router, d.TopK, d.Renorm)
	f.view.route(layer, f, route)
	if err := f.enter(ops.PartExperts); err != nil {
		return err
	}
	experts := m.experts
	if f.store != nil {
		experts.Records = f.store.Layer(f.ctx, m.stored, f.rows <= decodeRows)
	}
	if f.few != nil {
		f.count(f.few.RunShared(f.y, f.x, experts, route, ops.SharedExpert{Score: f.score, Gate: f.sGate, Up: f.sUp, Down: m.sharedDown, GateBy: m.sharedGate, UpBy: m.sharedUp}))
		return nil
	}
	f.count(be.RunExperts(f.y, f.x, experts, route))
	be.Linear(f.score, f.x, m.sharedScore)
	be.Linear(f.sGate, f.x, m.sharedGate)
	be.Linear(f.sUp, f.x, m.sharedUp)
	be.SwiGLU(f.sGate, f.sGate, f.sUp)
	be.Linear(f.sOut, f.sGate, m.sharedDown)
	be.AddGated(f.y, f.sOut, f.score)
	return nil
}

// count counts experts in memory that were used.
func (f *pass) count(u ops.Usage) {
	f.stats.Records += u.Records
	f.stats.RecordBytes += u.Bytes
}
