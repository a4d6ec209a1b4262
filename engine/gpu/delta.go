package gpu

import (
	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	unitHeads  kernel[shaders.UnitHeadsParams]  = "deltanet_unit_heads"
	deltaGates kernel[shaders.DeltaGatesParams] = "deltanet_gates"
	gatedNorm  kernel[shaders.GatedNormParams]  = "deltanet_gated_norm"
)

// deltaScan is the scan for key heads of at most dk dims: the state of a column lies in registers, so its length is a
// constant of the kernel.
func deltaScan(dk int) (kernel[shaders.DeltaScanParams], bool) {
	switch {
	case dk <= 32:
		return "deltanet_scan_32", true
	case dk <= 64:
		return "deltanet_scan_64", true
	case dk <= 128:
		return "deltanet_scan_128", true
	}
	return "deltanet_scan_256", dk <= 256
}

// UnitHeads: in place on heads h of x: x * rsqrt(sum x² + 1e-6) * scale.
func (b *Backend) UnitHeads(x ops.Tensor, h ops.Heads, scale float32) {
	fit(h.Within(x), "UnitHeads", x)
	e := b.begin()
	defer e.end()
	p := shaders.UnitHeadsParams{
		Rows: uint32(x.Rows), Cols: uint32(x.Cols), From: uint32(h.From), Heads: uint32(h.N), Stride: uint32(h.Stride),
		Dim: uint32(h.Dim), Scale: scale,
	}
	dispatch(e, unitHeads, p, launch{
		buffers: []region{shaders.UnitHeadsX: at(x)},
		groups:  over(x.Rows*h.N, shaders.BlockSimds), threads: shaders.BlockThreads,
	})
}

// DeltaGates: g = exp(-exp(A_log) * softplus(a + dt_bias)), beta = sigmoid(b).
func (b *Backend) DeltaGates(g, beta, a, bb ops.Tensor, aLog, dtBias []float32) {
	fit(ops.Same(g, beta, a, bb) && len(aLog) == g.Cols && len(dtBias) == g.Cols, "DeltaGates", g, beta, a, bb)
	e := b.begin()
	defer e.end()
	dispatch(e, deltaGates, shaders.DeltaGatesParams{Rows: uint32(g.Rows), Heads: uint32(g.Cols)}, launch{
		buffers: []region{
			shaders.GatesDecay: at(g), shaders.GatesBeta: at(beta), shaders.GatesA: at(a), shaders.GatesB: at(bb),
			shaders.GatesRate: e.rate(aLog), shaders.GatesDtBias: e.vector(dtBias),
		},
		groups: over(g.Rows*g.Cols, shaders.BlockThreads), threads: shaders.BlockThreads,
	})
}

// DeltaScan, row after row: S = g S;  S += k (beta (v - Sᵀk))ᵀ;  o = Sᵀ q. Key heads have at most 256 dims.
func (b *Backend) DeltaScan(o, qkv, g, beta, s ops.Tensor, d ops.DeltaDims) {
	scan, ok := deltaScan(d.Dk)
	fit(ok && d.Hk > 0 && d.Hv%d.Hk == 0 && qkv.Cols == 2*d.Hk*d.Dk+d.Hv*d.Dv && o.Cols == d.Hv*d.Dv && o.Rows == qkv.Rows &&
		ops.Same(g, beta) && g.Rows == qkv.Rows && g.Cols == d.Hv && s.Rows == d.Hv && s.Cols == d.Dk*d.Dv, "DeltaScan", o, qkv, g, beta, s)
	if qkv.Rows == 0 {
		return
	}
	e := b.begin()
	defer e.end()
	p := shaders.DeltaScanParams{Rows: uint32(qkv.Rows), Hk: uint32(d.Hk), Hv: uint32(d.Hv), Dk: uint32(d.Dk), Dv: uint32(d.Dv)}
	dispatch(e, scan, p, launch{
		buffers: []region{
			shaders.ScanO: at(o), shaders.ScanQkv: at(qkv), shaders.ScanDecay: at(g), shaders.ScanBeta: at(beta), shaders.ScanS: at(s),
		},
		groups:  metal.Size{X: (d.Dv + shaders.ScanColumns - 1) / shaders.ScanColumns, Y: d.Hv, Z: 1},
		threads: shaders.BlockThreads,
		work:    7 * float64(qkv.Rows) * float64(s.Rows*s.Cols),
	})
}

// GatedNorm: in place on o: plain RMS norm per head, times w, times gate(z).
func (b *Backend) GatedNorm(o, z ops.Tensor, w []float32, eps float32, silu bool) {
	fit(ops.Same(o, z) && len(w) > 0 && o.Cols%len(w) == 0, "GatedNorm", o, z)
	e := b.begin()
	defer e.end()
	p := shaders.GatedNormParams{Heads: uint32(o.Rows * (o.Cols / len(w))), Dv: uint32(len(w)), Eps: eps}
	if silu {
		p.Silu = 1
	}
	dispatch(e, gatedNorm, p, launch{
		buffers: []region{shaders.GatedNormO: at(o), shaders.GatedNormZ: at(z), shaders.GatedNormW: e.vector(w)},
		groups:  over(int(p.Heads), shaders.BlockSimds), threads: shaders.BlockThreads,
	})
}
