package qwen4exp

import (
	"math"

	"lector/engine/ops"
	"lector/engine/weights"
)

// dims are the sizes of the network; doc.go has the symbols.
type dims struct {
	Hidden, Streams, Wide, LowRank, Vocab int
	Eps                                   float32

	Delta      ops.DeltaDims
	Channels   int // C
	Taps       int // K
	GateSiLU   bool
	queryScale float32 // dk^-0.5

	Attn   ops.AttentionDims
	KV     ops.RowFormat // of the caches of keys and values
	Cell   int           // tokens after which recurrent states are rounded to bfloat16, over and over; 0: never
	Rope   ops.Rope
	Index  ops.Heads // the indexer's queries inside index_qk_proj
	Ratio  int       // c
	Budget int       // B, in tokens

	Experts, TopK, Inner, SharedInner int
	Renorm                            bool

	PLEDim, PLETaps, Ngram int
	EOS                    int32
}

func dimsOf(c *weights.Config) dims {
	return dims{
		Hidden: c.Hidden, Streams: c.Streams, Wide: c.Streams * c.Hidden, LowRank: c.LowRank, Vocab: c.Vocab,
		Eps:        float32(c.Eps),
		Delta:      ops.DeltaDims{Hk: c.DeltaKeyHeads, Hv: c.DeltaValueHeads, Dk: c.DeltaKeyDim, Dv: c.DeltaValueDim},
		Channels:   2*c.DeltaKeyHeads*c.DeltaKeyDim + c.DeltaValueHeads*c.DeltaValueDim,
		Taps:       c.DeltaTaps,
		GateSiLU:   c.SiLUGate,
		queryScale: float32(1 / math.Sqrt(float64(c.DeltaKeyDim))),
		Attn:       ops.AttentionDims{Hq: c.Heads, Hkv: c.KVHeads, Hd: c.HeadDim},
		Rope:       ops.Rope{Rot: c.Rotary, Theta: c.Theta},
		Index:      ops.Heads{N: c.IndexHeads, Stride: c.IndexDim, Dim: c.IndexDim},
		Ratio:      c.IndexRatio, Budget: c.IndexBudget,
		Experts: c.Experts, TopK: c.TopK, Inner: c.ExpertInner, SharedInner: c.SharedInner, Renorm: c.Renormalise,
		PLEDim: c.PLEDim, PLETaps: c.PLETaps, Ngram: c.NgramSize, EOS: c.EOS,
	}
}

func (d *dims) hasDelta() bool { return d.Delta.Hv > 0 }

// queryHeads and keyHeads are DeltaNet's q and k inside qkv.
func (d *dims) queryHeads() ops.Heads {
	return ops.Heads{N: d.Delta.Hk, Stride: d.Delta.Dk, Dim: d.Delta.Dk}
}

func (d *dims) keyHeads() ops.Heads {
	return ops.Heads{From: d.Delta.Hk * d.Delta.Dk, N: d.Delta.Hk, Stride: d.Delta.Dk, Dim: d.Delta.Dk}
}

// attnQueries are the queries inside qg, where each is followed by its gate.
func (d *dims) attnQueries() ops.Heads {
	return ops.Heads{N: d.Attn.Hq, Stride: 2 * d.Attn.Hd, Dim: d.Attn.Hd}
}

func (d *dims) attnKeys() ops.Heads {
	return ops.Heads{N: d.Attn.Hkv, Stride: d.Attn.Hd, Dim: d.Attn.Hd}
}

// blockKey is a pooled block key: one head a row.
func (d *dims) blockKey() ops.Heads {
	return ops.Heads{N: 1, Stride: d.Index.Dim, Dim: d.Index.Dim}
}

// cacheBytes is what an attention layer exports for a token.
func (d *dims) cacheBytes() int {
	n := d.Attn.Hkv * d.Attn.Hd
	row := 4 * n
	switch d.KV {
	case ops.RowsF16:
		row = 2 * n
	case ops.RowsQ8:
		row = n + 2*d.Attn.Hkv*d.groups() + 8
	}
	return 2*row + 4*d.Index.Dim
}

// groups is how many scales a head of a cache with 8-bit codes has.
func (d *dims) groups() int { return ops.Cache{Dim: d.Attn.Hd}.HeadGroups() }
