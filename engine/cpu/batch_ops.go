package cpu

import "lector/engine/ops"

// What asks nothing of the operations before.

func (q *batch) Class() string                              { return q.b.Class() }
func (q *batch) Grid() int                                  { return q.b.Grid() }
func (q *batch) Alloc(rows, cols int) (ops.Tensor, error)   { return q.b.Alloc(rows, cols) }
func (q *batch) AllocSlots(n, size int) (ops.Slots, error)  { return q.b.AllocSlots(n, size) }
func (q *batch) TakesFew(rows int) bool                     { return q.b.TakesFew(rows) }
func (q *batch) ReadsStreams(rows, low int) bool            { return q.b.ReadsStreams(rows, low) }
func (q *batch) ExpertBytes(d ops.ExpertDims, rows int) int { return q.b.ExpertBytes(d, rows) }

// What runs at once, behind them.

func (q *batch) Free(t ops.Tensor)                                  { q.now().Free(t) }
func (q *batch) Embed(y ops.Tensor, w ops.Matrix, ids []int32)      { q.now().Embed(y, w, ids) }
func (q *batch) SwiGLU(y, gate, up ops.Tensor)                      { q.now().SwiGLU(y, gate, up) }
func (q *batch) AddGated(y, x, gate ops.Tensor)                     { q.now().AddGated(y, x, gate) }
func (q *batch) MixStreams(x, u, z ops.Tensor)                      { q.now().MixStreams(x, u, z) }
func (q *batch) RoundState(s, loss ops.Tensor)                      { q.now().RoundState(s, loss) }
func (q *batch) Gather(e ops.Tensor, t ops.Table, ids []int64)      { q.now().Gather(e, t, ids) }
func (q *batch) StoreRows(c ops.Cache, row int, x ops.Tensor)       { q.now().StoreRows(c, row, x) }
func (q *batch) UnitHeads(x ops.Tensor, h ops.Heads, scale float32) { q.now().UnitHeads(x, h, scale) }

func (q *batch) DeltaGates(g, beta, a, b ops.Tensor, aLog, dtBias []float32) {
	q.now().DeltaGates(g, beta, a, b, aLog, dtBias)
}

func (q *batch) DeltaScan(o, qkv, g, beta, s ops.Tensor, d ops.DeltaDims) {
	q.now().DeltaScan(o, qkv, g, beta, s, d)
}

func (q *batch) GatedNorm(o, z ops.Tensor, w []float32, eps float32, silu bool) {
	q.now().GatedNorm(o, z, w, eps, silu)
}

func (q *batch) RunExperts(y, x ops.Tensor, e ops.Experts, route ops.Route) ops.Usage {
	return q.now().RunExperts(y, x, e, route)
}

func (q *batch) SiLU(x ops.Tensor, scale float32) {
	q.now().SiLU(x, scale)
}

func (q *batch) Sigmoid(x ops.Tensor, scale, gain float32) {
	q.now().Sigmoid(x, scale, gain)
}

func (q *batch) Add(y, x ops.Tensor) {
	q.now().Add(y, x)
}

func (q *batch) ShiftTail(tail, x ops.Tensor) {
	q.now().ShiftTail(tail, x)
}

func (q *batch) Inject(wide, y, inj ops.Tensor) {
	q.now().Inject(wide, y, inj)
}

func (q *batch) AddToStreams(wide, x ops.Tensor) {
	q.now().AddToStreams(wide, x)
}

func (q *batch) PLEGate(v, key, query, val ops.Tensor) {
	q.now().PLEGate(v, key, query, val)
}

func (q *batch) MeanBlocks(y, raw ops.Tensor, first, ratio int) {
	q.now().MeanBlocks(y, raw, first, ratio)
}

func (q *batch) Replicate(wide, x ops.Tensor) {
	q.now().Replicate(wide, x)
}

func (q *batch) RMSNorm(y, x ops.Tensor, scale []float32, group int, eps float32) {
	q.now().RMSNorm(y, x, scale, group, eps)
}

func (q *batch) RMSNormHeads(x ops.Tensor, h ops.Heads, scale []float32, eps float32) {
	q.now().RMSNormHeads(x, h, scale, eps)
}

func (q *batch) CopyRows(dst ops.Tensor, dstRow int, src ops.Tensor, from int) {
	q.now().CopyRows(dst, dstRow, src, from)
}

func (q *batch) Rope(x ops.Tensor, h ops.Heads, rope ops.Rope, pos, step int) {
	q.now().Rope(x, h, rope, pos, step)
}

func (q *batch) Conv(y, x, tail ops.Tensor, w []float32, dilation int, silu bool) {
	q.now().Conv(y, x, tail, w, dilation, silu)
}
