package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lector/engine/bench"
)

// prefillFlags are the flags of bench prefill.
type prefillFlags struct {
	benchFlags
	lengths, chunks, at []int
	synthetic           bool
}

func newBenchPrefill(a *app) *cobra.Command {
	var f prefillFlags
	c := &cobra.Command{
		Use:   "prefill",
		Short: "Measure reading by length and chunk, or by position, against the machine's own products",
		Long: "prefill reads texts of several lengths in chunks of several sizes. It prints tokens a second, the operations that the\n" +
			"model's shapes call for as a rate, their share of the best rate of the backend's own float32 products on the same\n" +
			"threads in the same run, and where the time went.\n\n" +
			"With --at it measures one chunk at each position instead. The state before it is read for real, or made up with\n" +
			"--synthetic-state: random finite numbers of the same size, restored as a stored state is.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchPrefill(c.Context(), f) },
	}
	f.declare(c)
	f.declareSVG(c)
	f.declareProfile(c)
	c.Flags().IntSliceVar(&f.lengths, "lengths", []int{512, 2048, 8192}, "`tokens` to read")
	c.Flags().IntSliceVar(&f.chunks, "chunk", []int{defaultChunk}, "`tokens` of a chunk, one or more sizes")
	c.Flags().IntSliceVar(&f.at, "at", nil, "`positions` to measure one chunk at")
	c.Flags().BoolVar(&f.synthetic, "synthetic-state", false, "make the state before --at up instead of reading it")
	return c
}

func (a *app) benchPrefill(ctx context.Context, f prefillFlags) error {
	switch {
	case len(f.chunks) == 0 || len(f.at) == 0 && len(f.lengths) == 0:
		return badInput(fmt.Errorf("--lengths and --chunk: at least one of each"))
	case len(f.at) > 0 && len(f.chunks) != 1:
		return badInput(fmt.Errorf("--at takes one size of --chunk, not %d", len(f.chunks)))
	case f.synthetic && len(f.at) == 0:
		return badInput(fmt.Errorf("--synthetic-state is about --at"))
	}
	b, err := a.openBench(ctx, "prefill", f.benchFlags)
	if err != nil {
		return err
	}
	defer b.Close()
	if len(f.at) > 0 {
		b.report.State = stateName(f.synthetic)
	}
	err = b.measure(ctx, func() ([]bench.Row, error) {
		if len(f.at) > 0 {
			return b.runner.At(ctx, f.at, bench.StateOptions{Chunk: f.chunks[0], Synthetic: f.synthetic})
		}
		return b.runner.Prefill(ctx, f.lengths, f.chunks)
	})
	if err != nil {
		return err
	}
	return b.finish(b.prefillTable)
}

func stateName(synthetic bool) string {
	if synthetic {
		return "synthetic"
	}
	return "prefilled"
}

// head says what was measured on what.
func (b *benchRun) head(t *tabwriter.Writer) {
	r, c := b.report, b.report.Ceiling
	fmt.Fprintf(t, "model\t%s, class %s, weights %.12s\n", r.Model.Name, r.Model.Class, r.Model.Digest)
	fmt.Fprintf(t, "host\t%s, %d cores, %d threads, %s %s/%s\n", r.Host.CPU, r.Host.Cores, c.Workers, r.Host.Go, r.Host.OS, r.Host.Arch)
	if r.Host.Device != cpuDevice {
		fmt.Fprintf(t, "device\t%s\n", r.Host.Device)
	}
	if r.Host.Load != "" {
		fmt.Fprintf(t, "load\t%s before the run (runnable tasks over 1, 5 and 15 minutes)\n", r.Host.Load)
	}
	fmt.Fprintf(t, "ceiling\t%.1f GFLOP/s, the best of", c.FLOPs()/1e9)
	shapes := map[[3]int]bool{}
	for _, g := range c.GEMM {
		if shape := [3]int{g.M, g.N, g.K}; !shapes[shape] {
			shapes[shape] = true
			fmt.Fprintf(t, " %dx%dx%d", g.M, g.N, g.K)
		}
	}
	fmt.Fprintf(t, " in float32; reading memory %s", rate(c.BytesPerSecond()))
	if s := c.HandoffSeconds(); s > 0 {
		fmt.Fprintf(t, "; from core to core %.0f ns", 1e9*s)
	}
	fmt.Fprintln(t)
	tokens := fmt.Sprintf("random, seed %d", r.Seed)
	if r.Text != "" {
		tokens = "of " + r.Text
	}
	fmt.Fprintf(t, "tokens\t%s\n", tokens)
	if r.State != "" {
		fmt.Fprintf(t, "state\t%s\n", r.State)
	}
}

func (b *benchRun) prefillTable() error {
	t := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	b.head(t)
	what := "length, tokens"
	if b.report.State != "" {
		what = "position, tokens"
	}
	fmt.Fprintf(t, "\n%s\tchunk\ttokens/s\tfrom..to\tGFLOP/s\tof ceiling\tMFLOP/token\tDeltaNet\tattention\texperts\tdraft head\tn-grams\tother\n", what)
	for _, r := range b.report.Rows {
		x := r.Length
		if b.report.State != "" {
			x = r.Position
		}
		low, high := r.Range()
		fmt.Fprintf(t, "%d\t%d\t%.1f\t%.1f..%.1f\t%.2f\t%s\t%.2f", x, r.Chunk, r.Median(), low, high, r.FLOPs()/1e9,
			share(r.FLOPs(), b.report.Ceiling.FLOPs()), float64(r.FLOP.Total())/float64(r.Length)/1e6)
		s := r.Sum()
		for _, part := range []float64{s.Delta, s.Attention, s.Experts, s.MTP, s.Ngram, s.Other} {
			fmt.Fprintf(t, "\t%s", share(part, s.Seconds))
		}
		fmt.Fprintln(t)
	}
	if first, last := b.ends(); first != nil {
		fmt.Fprintf(t, "\ncost of a token at %d: %.2f times that at %d\n", last.Position, first.Median()/last.Median(), first.Position)
	}
	return t.Flush()
}

// ends are the rows of the first and the last position, nil where there are not two.
func (b *benchRun) ends() (first, last *bench.Row) {
	for i := range b.report.Rows {
		r := &b.report.Rows[i]
		if first == nil || r.Position < first.Position {
			first = r
		}
		if last == nil || r.Position > last.Position {
			last = r
		}
	}
	if b.report.State == "" || first == nil || first.Position == last.Position || last.Median() == 0 {
		return nil, nil
	}
	return first, last
}

// rate is bytes a second, as far as they were measured.
func rate(bytes float64) string {
	if bytes == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.1f GB/s", bytes/1e9)
}

// share is a part of a whole in per cent.
func share(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}
