package ops

// Work is what a chunk asks of a backend beside the tensors that it is given.
type Work struct {
	Rows    int // most rows of one pass
	Context int // tokens that a row can look back at, its own included
	Experts ExpertDims
	Choices int // experts to choose from
	Logits  int // columns of a row of logits
	Wide    int // columns of all streams of the residual
	Low     int // columns between the two products of a gated read
	Attn    AttentionDims
	Ratio   int // tokens of a block
	Budget  int // blocks that a row sees at most
	Rot     int // dims that a rotary embedding turns
	Vectors int // the longest vector of gates, in floats
	Ngrams  int // stored bytes of the n-gram rows that one row gathers
}

// Scratch is a Backend that works in memory of its own beside tensors, weights and slots. One layout says how much, and
// is what Reserve allocates: RowsFit bisects it.
type Scratch interface {
	// WorkBytes is what the backend holds for work up to w, page rounding included.
	WorkBytes(w Work) int
	// Reserve makes room for work up to w; within it no operation allocates, but to gather from a table that is stored in
	// several ways. What is there is kept where it is enough.
	Reserve(w Work) error
	// DropScratch gives all of it back. Choices of blocks and experts made before are void.
	DropScratch()
	// PageBytes is what every allocation is rounded up to.
	PageBytes() int
	// Room is how many more bytes the device recommends to hold; 0 where it recommends nothing.
	Room() int64
}
