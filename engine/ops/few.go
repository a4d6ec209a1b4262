package ops

// FewRows is what a Backend may be besides: one that carries out several operations on few rows at once, as decoding wants
// it, where handing work out takes about as long as the work. The bits are those of the single operations.
type FewRows interface {
	// TakesFew says that so many rows are few.
	TakesFew(rows int) bool
	// LinearAll: ys[i] = x ws[i]ᵀ for every i.
	LinearAll(x Tensor, ys []Tensor, ws []*Matrix)
	// StepDelta carries out what lies between the projections of a Gated DeltaNet mixer. exchanged says that OldS and
	// OldTail hold what S and Tail become instead, and the caller is to exchange them.
	StepDelta(s DeltaStep) (exchanged bool)
	// SharesInside says that RunShared multiplies with the shared expert's first matrices too, so that nobody else need.
	SharesInside() bool
	// RunShared is RunExperts, and adds the shared expert: y += sigmoid(Score) * Down(silu(Gate) * Up). Gate is overwritten.
	RunShared(y, x Tensor, e Experts, t Route, s SharedExpert) Usage
}

// Batcher is what a Backend may be besides: one that can put off operations, to run several as one piece of work.
type Batcher interface {
	// Batch is the same backend, whose operations may run late.
	Batch() Backend
}

// SharedExpert is the expert that every row goes to: what its first products gave, and its last matrix. Gate and Up are
// only room, and GateBy and UpBy set, for who SharesInside.
type SharedExpert struct {
	Score, Gate, Up Tensor // [T, 1], [T, inner] twice
	Down            Matrix // [h, inner]
	GateBy, UpBy    Matrix // [inner, h]
}

// DeltaStep is a Gated DeltaNet mixer between its projections, for few rows:
//
//	QKV = silu(conv(Raw));  Tail moves on;  q, k = unit(q) QueryScale, unit(k)
//	A, B = DeltaGates(A, B);  S = DeltaScan(...);  O = GatedNorm(Sᵀ q, Z)
//
// OldS and OldTail become copies of S and Tail as they were.
type DeltaStep struct {
	O, QKV, Raw, Tail, Z, A, B, S Tensor
	OldS, OldTail                 Tensor
	Dims                          DeltaDims
	Conv                          []float32 // [C, K]
	ALog, DtBias                  []float32 // [Hv]
	Norm                          []float32 // [Dv]
	QueryScale, Eps               float32
	SiLU                          bool // of the gate
}

// Singly is StepDelta by the single operations of b: for who has no shorter way.
func (s DeltaStep) Singly(b Backend) {
	d := s.Dims
	b.CopyRows(s.OldS, 0, s.S, 0)
	b.CopyRows(s.OldTail, 0, s.Tail, 0)
	b.Conv(s.QKV, s.Raw, s.Tail, s.Conv, 1, true)
	b.UnitHeads(s.QKV, Heads{N: d.Hk, Stride: d.Dk, Dim: d.Dk}, s.QueryScale)
	b.UnitHeads(s.QKV, Heads{From: d.Hk * d.Dk, N: d.Hk, Stride: d.Dk, Dim: d.Dk}, 1)
	b.DeltaGates(s.A, s.B, s.A, s.B, s.ALog, s.DtBias)
	b.DeltaScan(s.O, s.QKV, s.A, s.B, s.S, d)
	b.ShiftTail(s.Tail, s.Raw)
	b.GatedNorm(s.O, s.Z, s.Norm, s.Eps, s.SiLU)
}
