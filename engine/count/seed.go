package count

import "lector/engine/weights"

// seedPage is what every buffer of the formula is rounded up to.
const seedPage = 16 << 10

// seedScratch is what an engine takes for a chunk that holds all its intermediates side by side and whose attention is
// products over explicit scores: the formula of the engine that this one's structure follows. context is the most
// tokens of the sequence.
func seedScratch(c *weights.Config, context, rows int) int64 {
	const queries = 256 // rows of a sub-chunk of attention
	padded := up(rows, 32) + 32
	h, wide, kv := c.Hidden, c.Wide(), c.KVHeads*c.HeadDim
	values := c.DeltaValueHeads * c.DeltaValueDim
	blocks, keys, repeat := context/c.IndexRatio+1, up(context, 32), c.Heads/c.KVHeads
	total := int64(0)
	add := func(width int, counts ...int) {
		for _, n := range counts {
			total += int64(up(width*n, seedPage))
		}
	}
	add(4*padded, 1, h, wide, wide, c.LowRank, wide, h, c.Streams, h, h) // ids, e, hyper, normed, d, u, mixed, inj, mix_out, moe_out
	add(4*padded, c.Heads*2*c.HeadDim, kv, kv, c.Heads*c.HeadDim)        // qg, k, v, attn_out
	add(4*padded, (c.IndexHeads+1)*c.IndexDim, c.IndexHeads*c.IndexDim)  // iqk, iq
	add(4*padded, blocks, c.IndexBudget+c.IndexRatio, 1, up(blocks, 32)/32)
	add(2, c.Heads*queries*c.HeadDim, keys*c.HeadDim, c.HeadDim*keys)              // qh, kh, vt
	add(4, repeat*queries*keys)                                                    // s
	add(2, repeat*queries*keys)                                                    // p
	add(4, repeat*queries*c.HeadDim)                                               // o
	add(4*padded, c.DeltaChannels(), values, c.DeltaValueHeads, c.DeltaValueHeads) // qkv, z, a, b
	add(4*padded, 2*c.DeltaKeyHeads*c.DeltaKeyDim, 2*c.DeltaValueHeads, values)    // kqn, gbuf, delta_y
	add(4*padded, c.Experts, c.TopK, c.TopK, c.TopK, c.TopK)                       // router, top k, csr
	add(4*padded, h, c.ExpertInner, c.ExpertInner, c.ExpertInner, h)               // xg, ge, ue, hg, ye
	add(4*padded, wide, h, wide)                                                   // mtp_hyper, fe, fh
	return total
}
