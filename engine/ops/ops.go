// Package ops is the set of operations the network is written in: tensors, weights by reference, and the
// Backend that computes. It imports nothing of ours; engine/cpu and engine/gpu implement it.
//
// Shapes are row-major float32. T is the number of rows of a chunk. A backend may run operations late:
// results may be read, and errors are known, only after Wait. Every operation computes row by row: what a
// row's result is does not depend on the rows beside it, nor on how many there are.
//
// The equations here are those of the design's model; sums are in the order the numeric class writes down
// (see the backend). Operations panic on shapes that do not fit: that is a fault in the network, not input.
package ops

import (
	"context"
	"errors"
)

var (
	// ErrDevice says that the device failed; the message names the operation. What it computed since the last Wait
	// is void.
	ErrDevice = errors.New("device failed")
	// ErrNumeric says that an operation met numbers that are none where it had to choose by them.
	ErrNumeric = errors.New("numbers that are none")
	// ErrMemory says that the memory limit does not hold an allocation.
	ErrMemory = errors.New("memory limit reached")
)

// Tensor is a float32 matrix owned by a backend. Copying the struct shares the memory.
type Tensor struct {
	Rows, Cols int
	Mem        Memory
	Off        int // in floats, of element (0, 0) within Mem
}

// Memory is a backend's allocation. Floats is the host's view of its floats [from, to), coherent after Wait. What the
// host writes there is in the memory for the operations that follow; where the memory is a device's own, the view is a
// copy as of the call.
type Memory interface{ Floats(from, to int) []float32 }

// Empty says that the tensor was never allocated.
func (t Tensor) Empty() bool { return t.Mem == nil }

// Floats is the host's view of all elements, [Rows*Cols].
func (t Tensor) Floats() []float32 { return t.Mem.Floats(t.Off, t.Off+t.Rows*t.Cols) }

// Row is the host's view of row r, [Cols].
func (t Tensor) Row(r int) []float32 { return t.Slice(r, r+1).Floats() }

// Slice is rows [from, to), sharing memory.
func (t Tensor) Slice(from, to int) Tensor {
	if from < 0 || to < from || to > t.Rows {
		panic("ops: slice outside the tensor")
	}
	t.Off += from * t.Cols
	t.Rows = to - from
	return t
}

// Reshape reads the same memory as rows of cols.
func (t Tensor) Reshape(rows, cols int) Tensor {
	if rows*cols != t.Rows*t.Cols {
		panic("ops: reshape changes the size")
	}
	t.Rows, t.Cols = rows, cols
	return t
}

// Format says how a Matrix is stored.
type Format uint8

const (
	F32    Format = iota // little-endian float32
	BF16                 // upper half of a float32
	F16                  // IEEE half
	Affine               // MLX affine: codes of Bits bits, a bf16/f16/f32 scale and bias for every Group inputs
)

// Matrix refers to a stored matrix [Out, In]; it stays as stored.
type Matrix struct {
	Name    string
	Out, In int
	Precise bool // products in float32 also where the class stages in half: what chooses experts, and what gates
	Format  Format
	Bits    int     // Affine: 2, 3, 4, 6 or 8. A row is one little-endian bit stream, code i at bit Bits*i
	Group   int     // Affine: inputs that share a scale and a bias; value = scale*code + bias
	Side    Format  // Affine: how Scales and Biases are stored (F32, BF16 or F16)
	Tiled   int     // Affine: how many outputs lie side by side in an order of the backend's own (Arranger); 0: as stored
	Panels  *Panels // a place for a backend's own copy; nil where it must not have one
	Data    []byte  // [Out, In] or the codes [Out, In*Bits/8]
	Scales  []byte  // Affine: [Out, In/Group]
	Biases  []byte  // Affine: [Out, In/Group]
}

// Bytes is the stored size.
func (m Matrix) Bytes() int { return len(m.Data) + len(m.Scales) + len(m.Biases) }

// Experts refers to the routed experts of one layer: all in memory, or records in storage.
type Experts struct {
	N, Inner int
	// At returns expert e of those in memory: Gate and Up [Inner, h], Down [h, Inner].
	At func(e int) Expert
	// Records reads them from storage; nil where At has them.
	Records Records
}

// Expert is one record.
type Expert struct{ Gate, Up, Down Matrix }

// Bytes is the record's stored size.
func (e Expert) Bytes() int { return e.Gate.Bytes() + e.Up.Bytes() + e.Down.Bytes() }

// Table refers to rows stored in equal shards, one after another.
type Table struct {
	Shards []Matrix // each [rows, dim]
	Rows   int      // of all shards
	Dim    int
}

// Records are the experts of one layer in storage, for one call of RunExperts.
type Records interface {
	// Sweep starts to read the wanted experts, each at most once, and returns at once. Experts are wanted once each.
	// A store has one sweep at a time: End the one before first.
	Sweep(wants []Want) Sweep
}

// Resident is what Records may be besides: records that can all be in memory at once.
type Resident interface {
	// Resident returns all experts of the layer where every one of their records is in a slot and stays there until the
	// next sweep, else nothing: then they are to be swept. It counts so many of them as used. What it returns is the same
	// slice as long as no record changes its place.
	Resident(used int) []Expert
}

// Want is an expert and how many rows of the chunk go to it.
type Want struct{ Expert, Rows int }

// Sweep is one reading of the wanted experts, ahead of use. A backend uses the items in their order, in groups of at
// most eight: item i may wait for a slot until the items up to i-16 are done.
type Sweep interface {
	// Items lists the wanted experts in the order in which they become available, known before they are read.
	Items() []Item
	// Wait returns once item i and all before it are in their slots, or with the first error of the sweep: then every
	// slot's content is void, and only End is left to call.
	Wait(i int) error
	// Done says that the slots of item i and of all before it are not used any more. A backend whose device signals
	// Slots.Done itself never calls it.
	Done(i int)
	// End finishes the sweep, whatever is left of it, and returns its first error; again, it only returns that. Nobody reads or writes a slot
	// afterwards: a device must be past every item, or have given up.
	End() error
}

// Item is a wanted expert's place in a sweep.
type Item struct {
	Want
	Slot   int    // index into Slots.Mem
	Ticket uint64 // of its values in Slots.Fetched and Slots.Done: Fetched reaches it when the record is there
	Hit    bool   // the record is there already
	Record Expert // views of the slot, which hold the record between Wait and Done
}

// Slots is memory that records are read into, and the two counters of a sweep.
type Slots struct {
	Mem [][]byte // each of the size that was asked for, on a page boundary
	// Fetched counts items that are in their slots; the reader alone signals it. After an error or a cancelled
	// context it still reaches every ticket. Done counts items that are used up; the backend alone signals it. nil:
	// the host uses the slots, through Sweep.Wait and Sweep.Done, and the reader keeps counters of its own.
	Fetched, Done Event
	// Release tells that slot i holds nothing for now, so that its memory may go to others until it is used again.
	// nil: it stays where it is.
	Release func(i int)
	// Free gives all of it back.
	Free func()
}

// Event is a counter that never goes back, with one writer.
type Event interface {
	Signal(v uint64)
	// Wait returns when the counter has reached v, or with the context's error.
	Wait(ctx context.Context, v uint64) error
}

// Heads names a run of equal heads inside the columns of a tensor: head i starts at From + i*Stride.
type Heads struct{ From, N, Stride, Dim int }

// Rope is a rotary embedding of the first Rot dims of a head, pairing (i, i + Rot/2), angle pos * Theta^(-2i/Rot).
type Rope struct {
	Rot   int
	Theta float64
}

// Index is a backend's choice of blocks for every row of a chunk (made by SelectBlocks).
type Index interface {
	// Blocks lists, ascending, the complete blocks visible to row r. Coherent after Wait.
	Blocks(r int) []int32
}

// Route is a backend's choice of experts for every row of a chunk (made by Route).
type Route interface {
	// Row returns the experts of row r in slot order and their weights. Coherent after Wait.
	Row(r int) (experts []int32, weights []float32)
}

// Usage counts the experts in memory that an operation used, each once, or once for every row where the choice was not
// looked at. Records count themselves.
type Usage struct {
	Records int
	Bytes   int64
}

// ExpertDims are the sizes of a mixture of experts: x is [T, Width], a row goes to TopK experts of Inner columns.
type ExpertDims struct {
	Width, Inner, TopK int
	Stored             bool // records come from storage
}

// DeltaDims are the sizes of a Gated DeltaNet mixer. Columns of qkv: q [Hk*Dk], k [Hk*Dk], v [Hv*Dv].
type DeltaDims struct{ Hk, Hv, Dk, Dv int }

// AttentionDims are the sizes of a gated attention. Columns of qg: every head's q [Hd] then its gate [Hd].
type AttentionDims struct{ Hq, Hkv, Hd int }

// Backend computes. All tensors passed to a backend came from its Alloc.
type Backend interface {
	// Class names the numeric class, Grid its node grid in tokens.
	Class() string
	Grid() int

	// Alloc returns zeroed memory for rows x cols floats, or an error that says how much was wanted.
	Alloc(rows, cols int) (Tensor, error)
	// Free gives memory back; the tensor and its slices must not be used again.
	Free(t Tensor)
	// AllocSlots returns memory for n records of size bytes. It need not be there before it is used.
	AllocSlots(n, size int) (Slots, error)
	// Wait finishes every operation queued so far, ends its sweeps, and returns the first error since the last Wait,
	// or the context's. After an error the results since the last Wait are void.
	Wait(ctx context.Context) error

	Dense
	Streams
	Delta
	Attention
	MoE
	PLE
}

// Dense are the operations shared by all blocks.
type Dense interface {
	// Embed: y[r] = row ids[r] of w. y [T, In of w].
	Embed(y Tensor, w Matrix, ids []int32)
	// Linear: y = x Wᵀ. x [T, In], y [T, Out].
	Linear(y, x Tensor, w Matrix)
	// RMSNorm: y = x * rsqrt(mean over a group of x² + eps) * scale[col mod len(scale)], groups of `group`
	// columns with a mean of their own. y may be x. A zero-centred norm passes scale = 1 + w.
	RMSNorm(y, x Tensor, scale []float32, group int, eps float32)
	// RMSNormHeads: the same in place on the heads h of x, each head its own group; scale [h.Dim].
	RMSNormHeads(x Tensor, h Heads, scale []float32, eps float32)
	// SiLU: x = silu(x * scale) in place.
	SiLU(x Tensor, scale float32)
	// Sigmoid: x = gain * sigmoid(x * scale) in place.
	Sigmoid(x Tensor, scale, gain float32)
	// SwiGLU: y = silu(gate) * up, all [T, n]. y may be gate.
	SwiGLU(y, gate, up Tensor)
	// AddGated: y[r] += sigmoid(gate[r]) * x[r]. gate [T, 1].
	AddGated(y, x, gate Tensor)
	// Add: y += x.
	Add(y, x Tensor)
	// CopyRows: dst[dstRow+r, c] = src[r, from+c] for every row of src and every column c of dst.
	CopyRows(dst Tensor, dstRow int, src Tensor, from int)
	// Rope rotates the heads h of x in place; row r stands at position pos + r*step.
	Rope(x Tensor, h Heads, rope Rope, pos, step int)
	// Conv: causal depthwise convolution. y[r, c] = sum over taps j of w[c, j] * in[r - (K-1-j)*dilation, c]
	// where rows before 0 come from tail [(K-1)*dilation, C], oldest first. w [C, K]. With silu: y = silu(y).
	Conv(y, x, tail Tensor, w []float32, dilation int, silu bool)
	// ShiftTail: tail = its own rows followed by those of x, the last Rows of them.
	ShiftTail(tail, x Tensor)
}

// Streams are the hyper-connection operations; wide is [T, n*h], stream after stream.
type Streams interface {
	// Replicate: every stream of wide = x. x [T, h].
	Replicate(wide, x Tensor)
	// MixStreams: x = mean over streams of u * z. u, z [T, n*h], x [T, h].
	MixStreams(x, u, z Tensor)
	// Inject: stream g of wide += inj[g] * y. y [T, h], inj [T, n].
	Inject(wide, y, inj Tensor)
	// AddToStreams: every stream of wide += x. x [T, h].
	AddToStreams(wide, x Tensor)
}

// Delta are the operations of Gated DeltaNet.
type Delta interface {
	// UnitHeads: in place on heads h of x: x * rsqrt(sum x² + 1e-6) * scale.
	UnitHeads(x Tensor, h Heads, scale float32)
	// DeltaGates: g = exp(-exp(A_log) * softplus(a + dt_bias)), beta = sigmoid(b). All [T, Hv]; g may be a, beta may be b.
	DeltaGates(g, beta, a, b Tensor, aLog, dtBias []float32)
	// DeltaScan, row after row, value head j with key head j / (Hv/Hk), S [Hv, Dk*Dv] updated in place:
	//	S  = g S;  S += k (beta (v - Sᵀk))ᵀ;  o = Sᵀ q
	// qkv [T, 2*Hk*Dk + Hv*Dv] after conv and unit norms, o [T, Hv*Dv].
	DeltaScan(o, qkv, g, beta, s Tensor, d DeltaDims)
	// RoundState: in place on s [Hv, Dk*Dv], every number to the nearest bfloat16, ties to even. loss [Hv, 2] becomes the
	// sum of squares of what that took from each row, and of the row before.
	RoundState(s, loss Tensor)
	// GatedNorm: in place on o [T, Hv*Dv]: plain RMS norm per head, times w [Dv], times gate(z).
	// gate is silu or else sigmoid.
	GatedNorm(o, z Tensor, w []float32, eps float32, silu bool)
}

// Attention are the operations of gated attention with QSA selection. Caches are tensors of capacity rows;
// pos is the position of row 0, so rows [0, pos+T) of a cache are valid.
type Attention interface {
	// MeanBlocks: y[j] = mean of the ratio raw rows [(first+j)*ratio, ...). raw is a cache [*, di], y [nb, di].
	MeanBlocks(y, raw Tensor, first, ratio int)
	// SelectBlocks: for row r at p = pos+r the min(budget, complete) best complete blocks, complete =
	// floor((p+1)/ratio), by score_j = sum over heads relu(iq_head . bk_j) / sqrt(di); ties to the lower block.
	// iq [T, *] with heads h (after norm and rope), bk [blocks, di]. A row whose complete <= budget sees them all.
	SelectBlocks(iq Tensor, h Heads, bk Tensor, pos, ratio, budget int) Index
	// StoreRows: rows [row, row+T) of the cache = x, rounded to its format. x [T, Heads*Dim].
	StoreRows(c Cache, row int, x Tensor)
	// Attend: o = softmax(q k / sqrt(Hd) over visible) v * sigmoid(gate). Visible to row p: the tokens of its
	// blocks (index) and of the incomplete tail block. qg [T, Hq*2*Hd], k and v [*, Hkv heads of Hd] in one format,
	// o [T, Hq*Hd].
	Attend(o, qg Tensor, k, v Cache, index Index, pos, ratio int, d AttentionDims)
}

// MoE are the operations of the mixture of experts.
type MoE interface {
	// Route: softmax over the logits [T, E] in float32, the k best (ties to the lower index), slot order by
	// weight; with renorm the k weights sum to 1.
	Route(logits Tensor, k int, renorm bool) Route
	// RunExperts: y[r] = sum over r's slots, in slot order, of weight * Down(silu(Gate x) * Up x). y is overwritten.
	// Records are taken as they arrive, each once for all rows; the sums keep the slot order all the same.
	RunExperts(y, x Tensor, e Experts, route Route) Usage
	// ExpertBytes is the most memory that RunExperts takes beside its tensors and slots.
	ExpertBytes(d ExpertDims, rows int) int
}

// PLE are the operations of the hashed n-gram embedding.
type PLE interface {
	// Gather: e[r] = the rows ids[r*n : (r+1)*n] of the table side by side. e [T, n*Dim].
	Gather(e Tensor, t Table, ids []int64)
	// PLEGate: s_g = key_g . query_g / sqrt(h); v_g = sigmoid(sign(s) sqrt(max(|s|, 1e-6))) * val, sign(0) = 0.
	// key, query, v [T, n*h], val [T, h]. v may be key.
	PLEGate(v, key, query, val Tensor)
}
