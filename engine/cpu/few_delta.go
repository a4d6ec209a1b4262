package cpu

import "lector/engine/ops"

// StepDelta carries out a step for each key head, with the value heads that use it: no other item touches their channels. It writes
// state and tail to where their copies are to be.
func (b *Backend) StepDelta(d ops.DeltaStep) (exchanged bool) {
	step := b.stepOf(d)
	defer b.steps.put(step)
	b.inPhases(step, step.phase())
	return d.O.Rows > 0
}

// stepOf is a step that fits.
func (b *Backend) stepOf(d ops.DeltaStep) *deltaStep {
	n := d.Dims
	fit(n.Hk > 0 && n.Hv%n.Hk == 0 && ops.Same(d.QKV, d.Raw) && d.QKV.Cols == 2*n.Hk*n.Dk+n.Hv*n.Dv && ops.Same(d.O, d.Z) && d.O.Cols == n.Hv*n.Dv &&
		d.O.Rows == d.QKV.Rows && ops.Same(d.A, d.B) && d.A.Rows == d.O.Rows && d.A.Cols == n.Hv && d.S.Rows == n.Hv && d.S.Cols == n.Dk*n.Dv &&
		len(d.ALog) == n.Hv && len(d.DtBias) == n.Hv && len(d.Norm) == n.Dv && len(d.Conv) > 0 && len(d.Conv)%d.QKV.Cols == 0 &&
		d.Tail.Cols == d.QKV.Cols && d.Tail.Rows == len(d.Conv)/d.QKV.Cols-1 &&
		ops.Same(d.S, d.OldS) && ops.Same(d.Tail, d.OldTail), "StepDelta", d.O, d.QKV, d.Raw, d.Tail)
	step := b.steps.take()
	*step = deltaStep{
		Backend: b, in: d, scan: deltaScan{n, all(d.O), all(d.QKV), all(d.A), all(d.B), d.OldS.Floats(), d.S.Floats()},
		taps: b.taps.of(d.Conv, len(d.Conv)/d.QKV.Cols), raw: all(d.Raw), tail: all(d.Tail), newTail: all(d.OldTail), gates: all(d.Z),
	}
	return step
}

type deltaStep struct {
	*Backend
	in               ops.DeltaStep
	scan             deltaScan
	taps             []float32 // of the convolution, tap by tap
	raw, tail, gates rows
	newTail          rows // what tail becomes
}

func (d *deltaStep) phase() phase { return phase{d.in.Dims.Hk, 1} }

func (d *deltaStep) reset() { *d = deltaStep{} }

func (d *deltaStep) do(s *scratch, _, from, to int) {
	for key := from; key < to; key++ {
		d.run(s, key)
	}
}

func (d *deltaStep) name(int) string { return "DeltaNet step" }

// run takes all rows through the channels of a key head: its query, its key and its values.
func (d *deltaStep) run(s *scratch, key int) {
	n := d.in.Dims
	each := n.Hv / n.Hk
	for _, c := range [...][2]int{{key * n.Dk, n.Dk}, {(n.Hk + key) * n.Dk, n.Dk}, {2*n.Hk*n.Dk + key*each*n.Dv, each * n.Dv}} {
		d.convolve(s, c[0], c[0]+c[1])
	}
	for r := range d.raw.n {
		row := d.scan.qkv.at(r)
		d.unitHead(row[key*n.Dk:][:n.Dk], d.in.QueryScale)
		d.unitHead(row[(n.Hk+key)*n.Dk:][:n.Dk], 1)
		for j := key * each; j < (key+1)*each; j++ {
			a, b := &d.scan.g.at(r)[j], &d.scan.beta.at(r)[j]
			*a, *b = deltaGate(*a, *b, exp64(float64(d.in.ALog[j])), d.in.DtBias[j])
		}
	}
	for j := key * each; j < (key+1)*each; j++ {
		for c := 0; c < n.Dv; c += deltaColumns {
			d.scan.columns(s, j, c, min(c+deltaColumns, n.Dv))
		}
		for r := range d.raw.n {
			d.gatedNorm(s, d.scan.o.at(r)[j*n.Dv:(j+1)*n.Dv], d.gates.at(r)[j*n.Dv:(j+1)*n.Dv], d.in.Norm, normGate{d.in.Eps, d.in.SiLU})
		}
	}
}

// convolve is Conv, activated, and ShiftTail for the channels [from, to).
func (d *deltaStep) convolve(s *scratch, from, to int) {
	c, before := d.raw.width, d.tail.n
	row := func(r int) []float32 { // row r of the tail followed by the raw rows, those starting at 0
		if r < 0 {
			return d.tail.at(before + r)[from:to]
		}
		return d.raw.at(r)[from:to]
	}
	for r := range d.raw.n {
		y := d.scan.qkv.at(r)[from:to]
		clear(y)
		for j := range before + 1 {
			s.vector.addProduct(y, d.taps[j*c+from:j*c+to], row(r-(before-j)))
		}
		s.vector.silu(y, 1)
	}
	for i := range before {
		copy(d.newTail.at(i)[from:to], row(i+d.raw.n-before))
	}
}
