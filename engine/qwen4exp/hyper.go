package qwen4exp

import "lector/engine/ops"

// hyper is one hyper-connection: the gated read of the wide residual, and what the block's output is
// injected with.
type hyper struct {
	norm   []float32  // scale of hc_norm [W]
	down   ops.Matrix // [r, W]
	up     ops.Matrix // [W, r]
	inject ops.Matrix // [n, W]; not in the final and the draft head's mixer
}

// read sets f.x to what the next block sees of f.wide, and f.inj to how its output goes back.
//
//	z   = groupedRMSNorm(wide)            [T, W]
//	d   = silu(Down z / n)                [T, r]
//	u   = sigmoid(Up d)                   [T, W]
//	x   = mean over streams of u * z      [T, h]
//	inj = 2 sigmoid(Inject z / n)         [T, n]
func (c *hyper) read(f *pass, inject bool) {
	if r, ok := f.be.(ops.StreamReader); ok && r.ReadsStreams(f.rows, f.dims.LowRank) {
		c.readAtOnce(f, r, inject)
		return
	}
	f.flush()
	perStream := 1 / float32(f.dims.Streams)
	f.be.RMSNorm(f.z, f.wide, c.norm, f.dims.Hidden, f.dims.Eps)
	f.be.Linear(f.low, f.z, c.down)
	f.be.SiLU(f.low, perStream)
	f.be.Linear(f.u, f.low, c.up)
	f.be.Sigmoid(f.u, 1, 1)
	f.be.MixStreams(f.x, f.u, f.z)
	if inject {
		f.be.Linear(f.inj, f.z, c.inject)
		f.be.Sigmoid(f.inj, perStream, 2)
	}
}

// readAtOnce is read in one operation, the deferred injection included.
func (c *hyper) readAtOnce(f *pass, r ops.StreamReader, inject bool) {
	read := ops.StreamRead{X: f.x, Wide: f.wide, Y: f.pending, Inj: f.inj, Norm: c.norm, Eps: f.dims.Eps, Down: c.down, Up: c.up}
	if inject {
		read.Inject = c.inject
	}
	r.ReadStreams(read)
	f.pending = ops.Tensor{}
}

// inject defers wide[g] += inj[g] * y to the next flush, so that a backend may fuse it with the read.
func (f *pass) inject(y ops.Tensor) { f.pending = y }

// flush carries out the deferred injection.
func (f *pass) flush() {
	if f.pending.Empty() {
		return
	}
	f.be.Inject(f.wide, f.pending, f.inj)
	f.pending = ops.Tensor{}
}
