package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lector/engine/weights"
)

func newModel(a *app) *cobra.Command {
	c := &cobra.Command{Use: "model", Short: "Show, pack, verify and make checkpoints", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	var asJSON bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Show shape, precision by part, sizes, conventions and state sizes of --model",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.modelShow(asJSON) },
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	c.AddCommand(show, newModelPack(a), newModelVerify(a), newModelNew(a))
	return c
}

// part sums the tensors of one part of the network in one precision.
type part struct {
	Part      string `json:"part"`
	Precision string `json:"precision"`
	Tensors   int    `json:"tensors"`
	Values    int64  `json:"values"`
	Bytes     int64  `json:"bytes"`
}

// shown is what model show prints.
type shown struct {
	Name          string            `json:"name"`
	Layers        int               `json:"layers"`
	Attention     int               `json:"attention_layers"`
	Vocabulary    int               `json:"vocabulary"`
	MaxTokens     int               `json:"max_tokens"`
	MaxChunk      int               `json:"max_chunk"`
	DraftHead     bool              `json:"draft_head"`
	Values        int64             `json:"values"`
	Bytes         int64             `json:"bytes"`
	BytesPerToken int               `json:"state_bytes_per_token"`
	FixedBytes    int               `json:"state_bytes_fixed"`
	LeastMemory   int64             `json:"least_memory"` // the smallest --memory that runs
	Parts         []part            `json:"parts"`
	Findings      []weights.Finding `json:"conventions"`
}

func (a *app) modelShow(asJSON bool) error {
	m, err := a.openModel()
	if err != nil {
		return err
	}
	defer m.Close()
	info, cfg := m.engine.Info(), m.checkpoint.Config()
	s := shown{
		Name: info.Name, Layers: info.Layers, Vocabulary: cfg.Vocab, MaxTokens: info.MaxTokens, MaxChunk: info.MaxChunk,
		DraftHead: info.DraftHead, BytesPerToken: info.BytesPerToken, FixedBytes: info.FixedBytes,
		Parts: partsOf(m.checkpoint.Tensors()), Findings: m.checkpoint.Findings(),
	}
	if p := m.checkpoint.Packed(); p != nil {
		s.Parts = append(s.Parts, tableParts(p)...)
	}
	if s.LeastMemory, err = m.engine.LeastMemory(); err != nil {
		return err
	}
	for _, k := range cfg.Kinds {
		if k == weights.Attention {
			s.Attention++
		}
	}
	for _, p := range s.Parts {
		s.Values += p.Values
		s.Bytes += p.Bytes
	}
	if asJSON {
		return json.NewEncoder(a.out).Encode(s)
	}
	return s.print(a, cfg)
}

func (s shown) print(a *app, cfg *weights.Config) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	head := "no draft head"
	if s.DraftHead {
		head = "an MTP draft head"
	}
	fmt.Fprintf(t, "model\t%s: qwen4_exp, %.1f M values in %s, %s\n", s.Name, float64(s.Values)/1e6, size(s.Bytes), head)
	fmt.Fprintf(t, "shape\t%d layers (%d DeltaNet, %d attention), hidden %d, %d streams, %d experts top %d, vocabulary %d\n",
		s.Layers, s.Layers-s.Attention, s.Attention, cfg.Hidden, cfg.Streams, cfg.Experts, cfg.TopK, s.Vocabulary)
	fmt.Fprintf(t, "context\t%d tokens, %d visible to a row of attention, chunks of at most %d\n", s.MaxTokens, cfg.IndexBudget, s.MaxChunk)
	fmt.Fprintf(t, "state\t%d bytes a token and %s fixed\n", s.BytesPerToken, size(int64(s.FixedBytes)))
	if s.LeastMemory > 0 {
		fmt.Fprintf(t, "memory\truns with --memory of %s and more, beside the dense weights, which are mapped\n", size(s.LeastMemory))
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, "part\tprecision\ttensors\tvalues\tbytes")
	for _, p := range s.Parts {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", p.Part, p.Precision, p.Tensors, p.Values, size(p.Bytes))
	}
	fmt.Fprintln(t, "\nconvention\tfound\tby")
	for _, f := range s.Findings {
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Class, f.Convention, f.Evidence)
	}
	return t.Flush()
}

// partsOf sums tensors by part and precision, the largest first.
func partsOf(tensors []weights.Tensor) []part {
	sums := map[[2]string]*part{}
	for _, t := range tensors {
		key := [2]string{partOf(t.Name), precision(t)}
		p := sums[key]
		if p == nil {
			p = &part{Part: key[0], Precision: key[1]}
			sums[key] = p
		}
		values := int64(1)
		for _, d := range t.Shape {
			values *= int64(d)
		}
		p.Tensors++
		p.Values += values
		p.Bytes += t.Bytes()
	}
	var out []part
	for _, p := range sums {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(x, y part) int {
		if x.Bytes != y.Bytes {
			return int(min(max(y.Bytes-x.Bytes, -1), 1))
		}
		return strings.Compare(x.Part+x.Precision, y.Part+y.Precision)
	})
	return out
}

func partOf(name string) string {
	for _, p := range []struct{ word, part string }{
		{"mtp.", "draft head"}, {"ngram_embedding", "n-gram table"}, {".ple.", "ple"}, {"shared_expert", "shared experts"},
		{".experts.", "experts"}, {"switch_mlp", "experts"}, {".mlp.gate", "router"}, {"hyper_connection", "hyper-connections"},
		{"linear_attn", "deltanet"}, {"self_attn", "attention"}, {"embed_tokens", "embedding"}, {"lm_head", "head"},
	} {
		if strings.Contains(name, p.word) {
			return p.part
		}
	}
	return "other"
}

func precision(t weights.Tensor) string {
	if q := t.Quant; q != nil {
		return fmt.Sprintf("affine %d-bit, group %d", q.Bits, q.Group)
	}
	return string(t.DType)
}
