package bench

import "lector/engine/weights"

// FLOP counts floating-point operations by part of the network. A multiply-add is two; norms, activations,
// convolutions, softmax and the choice of blocks and experts are not counted.
type FLOP struct {
	Dense     int64 `json:"dense"`     // matrices that every row meets, hyper-connections and shared experts included
	Experts   int64 `json:"experts"`   // routed experts
	Attention int64 `json:"attention"` // scores and values of the tokens that a row sees
	Index     int64 `json:"index"`     // scores of blocks, where there are more than a row may see
	Scan      int64 `json:"scan"`      // the recurrence of DeltaNet
	Head      int64 `json:"head"`      // the last row's logits
	Draft     int64 `json:"draft"`     // the draft head, all of it
}

// Total sums the parts.
func (f FLOP) Total() int64 {
	return f.Dense + f.Experts + f.Attention + f.Index + f.Scan + f.Head + f.Draft
}

// Add sums two counts.
func (f FLOP) Add(o FLOP) FLOP {
	return FLOP{
		f.Dense + o.Dense, f.Experts + o.Experts, f.Attention + o.Attention, f.Index + o.Index,
		f.Scan + o.Scan, f.Head + o.Head, f.Draft + o.Draft,
	}
}

// ChunkFLOP counts what one prefill of rows tokens from position pos on has to compute. With the symbols of
// engine/qwen4exp, W = n*h, and in multiply-adds:
//
//	a read of the streams  2 r W + n W           (n W is the injection's; the final read has none)
//	a DeltaNet mixer       h (C + Hv dv + 2 Hv) + Hv dv h
//	its scan               7/2 Hv dk dv          (decay, Sᵀk, the update, Sᵀq)
//	an attention mixer     h (2 Hq hd + 2 Hkv hd + (Hi + 1) di) + Hq hd h
//	its scores and values  2 Hq hd a visible token
//	its index              Hi di a complete block, for rows with more complete blocks than the budget
//	a mixture              h (E + 1 + 3 shared) + 3 k h inner
//	an n-gram embedding    W e + h e
//	the head               2 r W + V h           once a chunk
//	the draft head         h h + n h h and a layer of attention for each of its rows, and once the head
//
// The draft head runs over the rows that the chunk completes and one provisional row: rows + 1 from position pos - 1
// on, or rows at the document's start.
func ChunkFLOP(c *weights.Config, pos, rows int) FLOP {
	var macs FLOP
	n := int64(rows)
	for i, kind := range c.Kinds {
		macs.Dense += n * layerMACs(c, kind)
		macs.Experts += n * expertMACs(c)
		if c.PLEIndex(i) >= 0 {
			macs.Dense += n * int64(c.PLEDim) * int64(c.Wide()+c.Hidden)
		}
		if kind == weights.Attention {
			attend, index := attentionMACs(c, pos, rows)
			macs.Attention += attend
			macs.Index += index
			continue
		}
		macs.Scan += 7 * n * int64(c.DeltaValueHeads) * int64(c.DeltaKeyDim) * int64(c.DeltaValueDim) // of half operations
	}
	macs.Head = headMACs(c)
	macs.Draft = draftMACs(c, pos, rows)
	return FLOP{
		Dense: 2 * macs.Dense, Experts: 2 * macs.Experts, Attention: 2 * macs.Attention, Index: 2 * macs.Index,
		Scan: macs.Scan, Head: 2 * macs.Head, Draft: 2 * macs.Draft,
	}
}

// readMACs is one read of the streams, without its injection.
func readMACs(c *weights.Config) int64 { return 2 * int64(c.LowRank) * int64(c.Wide()) }

func headMACs(c *weights.Config) int64 { return readMACs(c) + int64(c.Vocab)*int64(c.Hidden) }

func expertMACs(c *weights.Config) int64 {
	return 3 * int64(c.TopK) * int64(c.Hidden) * int64(c.ExpertInner)
}

// layerMACs is what every row of a layer costs, routed experts and what depends on the position aside.
func layerMACs(c *weights.Config, kind weights.LayerKind) int64 {
	h := int64(c.Hidden)
	macs := 2*(readMACs(c)+int64(c.Streams)*int64(c.Wide())) + h*int64(c.Experts+1+3*c.SharedInner)
	if kind == weights.Attention {
		q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		return macs + h*int64(2*q+2*kv+(c.IndexHeads+1)*c.IndexDim) + h*int64(q)
	}
	values := c.DeltaValueHeads * c.DeltaValueDim
	return macs + h*int64(c.DeltaChannels()+values+2*c.DeltaValueHeads) + h*int64(values)
}

// attentionMACs is what rows from pos on cost one layer of attention by where they stand.
func attentionMACs(c *weights.Config, pos, rows int) (attend, index int64) {
	for p := pos; p < pos+rows; p++ {
		tokens, scored := Visible(c, p)
		attend += 2 * int64(c.Heads) * int64(c.HeadDim) * int64(tokens)
		index += int64(c.IndexHeads) * int64(c.IndexDim) * int64(scored)
	}
	return attend, index
}

// Visible says how many tokens the row at position p sees, itself included, and how many blocks have to be scored for
// it: none as long as it sees them all.
func Visible(c *weights.Config, p int) (tokens, scored int) {
	complete, tail := (p+1)/c.IndexRatio, (p+1)%c.IndexRatio
	if budget := c.IndexBudget / c.IndexRatio; complete > budget {
		return budget*c.IndexRatio + tail, complete
	}
	return p + 1, 0
}

func draftMACs(c *weights.Config, pos, rows int) int64 {
	if c.MTPLayers == 0 {
		return 0
	}
	if pos > 0 {
		pos, rows = pos-1, rows+1
	}
	h := int64(c.Hidden)
	attend, index := attentionMACs(c, pos, rows)
	each := h*h*int64(1+c.Streams) + layerMACs(c, weights.Attention) + expertMACs(c)
	return int64(rows)*each + attend + index + headMACs(c)
}
