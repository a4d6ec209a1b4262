package cpu

import "lector/engine/ops"

// unitEps keeps the norm of a zero key finite.
const unitEps = 1e-6

// UnitHeads: in place on heads h of x: x * rsqrt(sum x² + 1e-6) * scale. The factor is rounded once.
func (b *Backend) UnitHeads(x ops.Tensor, h ops.Heads, scale float32) {
	fit(h.Within(x), "UnitHeads", x)
	b.eachHead(x, h, func(head []float32) { b.unitHead(head, scale) })
}

// unitHead is UnitHeads of one head.
func (b *Backend) unitHead(head []float32, scale float32) {
	r := float32(float64(scale) * rsqrt(b.sumProducts(head, head)+unitEps))
	for i, v := range head {
		head[i] = v * r
	}
}

// DeltaGates: g = exp(-exp(A_log) * softplus(a + dt_bias)) in float64, rounded once; beta = sigmoid(b).
func (b *Backend) DeltaGates(g, beta, a, bb ops.Tensor, aLog, dtBias []float32) {
	fit(ops.Same(g, beta, a, bb) && len(aLog) == g.Cols && len(dtBias) == g.Cols, "DeltaGates", g, beta, a, bb)
	rate := make([]float64, g.Cols)
	for j, v := range aLog {
		rate[j] = exp64(float64(v))
	}
	gs, betas, as, bs := g.Floats(), beta.Floats(), a.Floats(), bb.Floats()
	b.parallel(len(gs), grain(100), func(_ *scratch, from, to int) {
		for i := from; i < to; i++ {
			j := i % g.Cols
			gs[i], betas[i] = deltaGate(as[i], bs[i], rate[j], dtBias[j])
		}
	})
}

// deltaGate is one g and beta of DeltaGates, given exp(A_log).
func deltaGate(a, b float32, rate float64, dtBias float32) (g, beta float32) {
	return float32(exp64(-float64(rate * softplus(float64(a)+float64(dtBias))))), sigmoid(b)
}

// deltaColumns is how many columns of a state one item of work carries through all rows: columns never meet, and
// that many of a real head (128 x 64 floats) stay in the first-level cache.
const deltaColumns = 64

// DeltaScan, row after row: S = g S;  S += k (beta (v - Sᵀk))ᵀ;  o = Sᵀ q.
func (b *Backend) DeltaScan(o, qkv, g, beta, s ops.Tensor, d ops.DeltaDims) {
	fit(d.Hk > 0 && d.Hv%d.Hk == 0 && qkv.Cols == 2*d.Hk*d.Dk+d.Hv*d.Dv && o.Cols == d.Hv*d.Dv && o.Rows == qkv.Rows &&
		ops.Same(g, beta) && g.Rows == qkv.Rows && g.Cols == d.Hv && s.Rows == d.Hv && s.Cols == d.Dk*d.Dv, "DeltaScan", o, qkv, g, beta, s)
	scan := deltaScan{d, all(o), all(qkv), all(g), all(beta), s.Floats(), s.Floats()}
	cuts := (d.Dv + deltaColumns - 1) / deltaColumns
	b.parallel(d.Hv*cuts, grain(4*qkv.Rows*d.Dk*deltaColumns), func(w *scratch, from, to int) {
		for i := from; i < to; i++ {
			c := i % cuts * deltaColumns
			scan.columns(w, i/cuts, c, min(c+deltaColumns, d.Dv))
		}
	})
}

type deltaScan struct {
	ops.DeltaDims
	o, qkv, g, beta rows
	state, before   []float32 // [Hv, Dk, Dv], behind the rows and before them: they may be the same
}

// columns scans all rows for the columns [from, to) of value head j.
func (d *deltaScan) columns(w *scratch, j, from, to int) {
	n := to - from
	state, before := d.state[j*d.Dk*d.Dv:(j+1)*d.Dk*d.Dv], d.before[j*d.Dk*d.Dv:(j+1)*d.Dk*d.Dv]
	delta, s, whole := floats(&w.more, n), state, n == d.Dv
	if !whole { // else all columns are side by side where they stand
		s = floats(&w.values, d.Dk*n)
		for i := range d.Dk {
			copy(s[i*n:(i+1)*n], before[i*d.Dv+from:])
		}
		before = s
	}
	key, value := j/(d.Hv/d.Hk)*d.Dk, 2*d.Hk*d.Dk+j*d.Dv
	for r := range d.qkv.n {
		row := d.qkv.at(r)
		q, k, v := row[key:key+d.Dk], row[d.Hk*d.Dk+key:][:d.Dk], row[value+from:value+to]
		w.vector.decayAndRead(s, before, delta, k, d.g.at(r)[j])
		before = s
		beta := d.beta.at(r)[j]
		for c := range delta {
			delta[c] = beta * (v[c] - delta[c])
		}
		o := d.o.at(r)[j*d.Dv+from : j*d.Dv+to]
		w.vector.updateAndRead(s, o, delta, k, q)
	}
	for i := range d.Dk {
		if !whole {
			copy(state[i*d.Dv+from:], s[i*n:(i+1)*n])
		}
	}
}

// decayAndRead: S = g from, t = Sᵀ k; S is [len(k), len(t)], and may be from. Four rows of S at a time, added in ascending order.
func (v vector) decayAndRead(s, from, t, k []float32, g float32) {
	if v.decayColumns(s, from, t, k, g) {
		return
	}
	clear(t)
	n, i := len(t), 0
	for ; i+4 <= len(k); i += 4 {
		k0, k1, k2, k3 := k[i], k[i+1], k[i+2], k[i+3]
		s0, s1, s2, s3 := s[i*n:][:n], s[(i+1)*n:][:n], s[(i+2)*n:][:n], s[(i+3)*n:][:n]
		f0, f1, f2, f3 := from[i*n:][:n], from[(i+1)*n:][:n], from[(i+2)*n:][:n], from[(i+3)*n:][:n]
		for c, sum := range t {
			a0, a1, a2, a3 := g*f0[c], g*f1[c], g*f2[c], g*f3[c]
			s0[c], s1[c], s2[c], s3[c] = a0, a1, a2, a3
			sum += float32(float32(a0) * k0)
			sum += float32(float32(a1) * k1)
			sum += float32(float32(a2) * k2)
			sum += float32(float32(a3) * k3)
			t[c] = sum
		}
	}
	for ; i < len(k); i++ {
		row, old := s[i*n:][:n], from[i*n:][:n]
		for c := range t {
			a := float32(g * old[c])
			row[c] = a
			t[c] += float32(a * k[i])
		}
	}
}

// updateAndRead: S += k deltaᵀ, o = Sᵀ q; S is [len(k), len(o)].
func (v vector) updateAndRead(s, o, delta, k, q []float32) {
	if v.updateColumns(s, o, delta, k, q) {
		return
	}
	clear(o)
	n, i := len(o), 0
	delta = delta[:n]
	for ; i+4 <= len(k); i += 4 {
		k0, k1, k2, k3 := k[i], k[i+1], k[i+2], k[i+3]
		q0, q1, q2, q3 := q[i], q[i+1], q[i+2], q[i+3]
		s0, s1, s2, s3 := s[i*n:][:n], s[(i+1)*n:][:n], s[(i+2)*n:][:n], s[(i+3)*n:][:n]
		for c, sum := range o {
			d := delta[c]
			a0, a1 := s0[c]+float32(k0*d), s1[c]+float32(k1*d)
			a2, a3 := s2[c]+float32(k2*d), s3[c]+float32(k3*d)
			s0[c], s1[c], s2[c], s3[c] = a0, a1, a2, a3
			sum += float32(a0 * q0)
			sum += float32(a1 * q1)
			sum += float32(a2 * q2)
			sum += float32(a3 * q3)
			o[c] = sum
		}
	}
	for ; i < len(k); i++ {
		row := s[i*n:][:n]
		for c, d := range delta {
			a := row[c] + float32(k[i]*d)
			row[c] = a
			o[c] += float32(a * q[i])
		}
	}
}

// GatedNorm: in place on o: plain RMS norm per head, times w, times gate(z).
func (b *Backend) GatedNorm(o, z ops.Tensor, w []float32, eps float32, useSiLU bool) {
	fit(ops.Same(o, z) && len(w) > 0 && o.Cols%len(w) == 0, "GatedNorm", o, z)
	out, gates, dv := o.Floats(), z.Floats(), len(w)
	b.parallel(o.Rows*(o.Cols/dv), grain(16*dv), func(s *scratch, from, to int) {
		for i := from; i < to; i++ {
			b.gatedNorm(s, out[i*dv:(i+1)*dv], gates[i*dv:(i+1)*dv], w, normGate{eps, useSiLU})
		}
	})
}

type normGate struct {
	eps  float32
	silu bool
}

// gatedNorm is GatedNorm of one head.
func (b *Backend) gatedNorm(s *scratch, head, z, w []float32, g normGate) {
	b.rmsNorm(head, head, w, g.eps)
	gate := floats(&s.values, len(head))
	copy(gate, z)
	if g.silu {
		s.vector.silu(gate, 1)
	} else {
		s.vector.sigmoid(gate, 1, 1)
	}
	for c, v := range gate {
		head[c] *= v
	}
}
