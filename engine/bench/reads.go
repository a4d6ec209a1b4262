package bench

import (
	"math"
	"strings"

	"lector/engine/weights"
)

// Reads counts the bytes that one decode step has to read, as stored, each once however many rows share them.
type Reads struct {
	Weights int64 `json:"weights"` // matrices and vectors of the trunk that every row meets, embedding rows included
	Experts int64 `json:"experts"` // records of routed experts
	Head    int64 `json:"head"`    // the output matrix
	Draft   int64 `json:"draft"`   // what the draft head's rows need, and for every draft all of it, its records and the output matrix again
	State   int64 `json:"state"`   // recurrent state
	Cache   int64 `json:"cache"`   // keys and values of the visible tokens, and block keys where blocks are scored
}

// Total sums the parts.
func (r Reads) Total() int64 { return r.Weights + r.Experts + r.Head + r.Draft + r.State + r.Cache }

// Add sums two counts.
func (r Reads) Add(o Reads) Reads {
	return Reads{
		r.Weights + o.Weights, r.Experts + o.Experts, r.Head + o.Head, r.Draft + o.Draft, r.State + o.State, r.Cache + o.Cache,
	}
}

// Stored is how large the parts of a checkpoint are, in bytes.
type Stored struct {
	Trunk       int64 // tensors of the trunk that every row meets
	Embed       int64 // one row of the embedding
	Ngram       int64 // one row of the n-gram table
	Head        int64 // the output matrix
	Draft       int64 // tensors of the draft head that every row meets
	DraftRows   int64 // those of them that make the rows which the head keeps
	Record      int64 // one routed expert of the trunk, the mean of all
	DraftRecord int64 // the same of the draft head
}

// StoredOf measures a checkpoint.
func StoredOf(c *weights.Checkpoint) Stored {
	var s Stored
	cfg := c.Config()
	var records, draftRecords, table int64
	for _, t := range c.Tensors() {
		draft := strings.HasPrefix(t.Name, "mtp.")
		switch expert := strings.Contains(t.Name, ".experts.") || strings.Contains(t.Name, "switch_mlp"); {
		case expert && draft:
			draftRecords += t.Bytes()
		case expert:
			records += t.Bytes()
		case draft:
			s.Draft += t.Bytes()
			if keepsRows(t.Name) {
				s.DraftRows += t.Bytes()
			}
		case strings.Contains(t.Name, "ngram_embedding"):
			table += t.Bytes()
			s.Ngram = t.Bytes() / int64(max(1, t.Shape[0]))
		case strings.Contains(t.Name, "ple_embedding"): // constants of the hash, read when the model is opened
		case strings.Contains(t.Name, "embed_tokens"):
			s.Embed = t.Bytes() / int64(cfg.Vocab)
		case strings.HasPrefix(t.Name, "lm_head"):
			s.Head = t.Bytes()
		default:
			s.Trunk += t.Bytes()
		}
	}
	if cfg.Tied {
		s.Head = s.Embed * int64(cfg.Vocab)
	}
	if p := c.Packed(); p != nil && table == 0 && p.NgramTables() > 0 {
		s.Ngram = int64(p.NgramRowBytes(0))
	}
	s.Record = records / int64(max(1, cfg.Layers*cfg.Experts))
	s.DraftRecord = draftRecords / int64(max(1, cfg.Experts))
	return s
}

// keepsRows says that a tensor of the draft head is needed for the rows that it keeps: all up to the keys and values.
func keepsRows(name string) bool {
	if !strings.HasPrefix(name, "mtp.layers.") {
		return !strings.Contains(name, "hyper_connection_mixer")
	}
	for _, part := range []string{
		"attn_hyper_connection.hc_norm", "attn_hyper_connection.input_mix", ".k_proj", ".v_proj", ".k_norm", ".index_qk_proj", "indexer.k_layernorm",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// StepReads counts what one decode step reads that takes a token at position pos and drafts behind it, drafting
// included. The step's rows share what they read; several rows touch as many experts as even routing would,
// E (1 - (1 - k/E)^rows), and see no more tokens than the last of them. What a draft head needs for the rows that it keeps
// is in Draft even without drafts.
func StepReads(c *weights.Config, s Stored, pos, drafts int) Reads {
	rows := 1 + drafts
	r := Reads{
		Weights: s.Trunk + int64(rows)*(s.Embed+int64(len(c.PLELayers)*c.AllNgramHeads())*s.Ngram),
		Experts: int64(math.Round(float64(c.Layers) * touched(c, rows) * float64(s.Record))),
		Head:    s.Head,
	}
	cache := cacheReads(c, pos+drafts)
	for i, kind := range c.Kinds {
		if kind == weights.Attention {
			r.Cache += cache
		} else {
			r.State += 4 * int64(c.DeltaValueHeads*c.DeltaKeyDim*c.DeltaValueDim+(c.DeltaTaps-1)*c.DeltaChannels())
		}
		if c.PLEIndex(i) >= 0 {
			r.State += 4 * int64((c.PLETaps-1)*c.NgramSize*c.Wide())
		}
	}
	if c.MTPLayers == 0 {
		return r
	}
	each := s.Draft + int64(math.Round(touched(c, 1)*float64(s.DraftRecord))) + s.Head
	r.Draft = s.DraftRows + int64(drafts)*each
	r.Cache += int64(drafts) * cacheReads(c, max(0, pos-1))
	return r
}

// touched is how many experts of a layer some rows need.
func touched(c *weights.Config, rows int) float64 {
	if rows == 1 || c.Experts == 0 {
		return float64(c.TopK)
	}
	all := float64(c.Experts)
	return all * (1 - math.Pow(1-float64(c.TopK)/all, float64(rows)))
}

// cacheReads is what one layer of attention reads for the row at position p.
func cacheReads(c *weights.Config, p int) int64 {
	tokens, scored := Visible(c, p)
	return 4 * int64(2*tokens*c.KVHeads*c.HeadDim+scored*c.IndexDim)
}
