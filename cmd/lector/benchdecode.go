package main

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lector/engine"
	"lector/engine/bench"
	"lector/engine/ops"
)

// decodeFlags are the flags of bench decode.
type decodeFlags struct {
	benchFlags
	positions, drafts []int
	tokens            int
	synthetic, parts  bool
}

func newBenchDecode(a *app) *cobra.Command {
	var f decodeFlags
	c := &cobra.Command{
		Use:   "decode",
		Short: "Measure generation by position and drafts against the machine's memory",
		Long: "decode generates greedily behind texts of several lengths, with several numbers of drafts. It prints tokens a second,\n" +
			"the bytes that a step must read (weights once, state, the visible part of the caches), the rate that follows, and its\n" +
			"share of a plain parallel read of memory in the same run. Drafts are the draft head's; random weights confirm few.\n\n" +
			"A second table has a step's time by part of the network. With --operations there is a third, of one more sample: the time\n" +
			"of each operation, or step of one, and how much of it the threads waited. It is the CPU's alone.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchDecode(c.Context(), f) },
	}
	f.declare(c)
	f.declareSVG(c)
	f.declareProfile(c)
	f.declareChunk(c)
	c.Flags().BoolVar(&f.parts, "operations", false, "take one more sample that counts each operation's time")
	c.Flags().IntSliceVar(&f.positions, "positions", []int{512, 4096}, "`tokens` before the first one generated")
	c.Flags().IntSliceVar(&f.drafts, "drafts", []int{0}, "`drafts` a step, 0 to 3, one or more numbers")
	c.Flags().IntVar(&f.tokens, "tokens", 32, "`tokens` to generate")
	c.Flags().BoolVar(&f.synthetic, "synthetic-state", false, "make the state up instead of reading the text before it")
	return c
}

func (a *app) benchDecode(ctx context.Context, f decodeFlags) error {
	if len(f.positions) == 0 || len(f.drafts) == 0 {
		return badInput(fmt.Errorf("--positions and --drafts: at least one of each"))
	}
	if most := slices.Max(f.drafts); slices.Min(f.drafts) < 0 || most > engine.MaxDrafts || f.tokens < 1 {
		return badInput(fmt.Errorf("--drafts %v and --tokens %d: 0 to %d drafts, and at least 1 token", f.drafts, f.tokens, engine.MaxDrafts))
	}
	b, err := a.openBench(ctx, "decode", f.benchFlags)
	if err != nil {
		return err
	}
	defer b.Close()
	b.report.State = stateName(f.synthetic)
	o := bench.DecodeOptions{
		Positions: f.positions, Drafts: f.drafts, Tokens: f.tokens, Threads: b.threads(),
		StateOptions: bench.StateOptions{Chunk: f.chunk, Synthetic: f.synthetic},
	}
	if f.parts {
		if o.Profiler, err = b.profiler(); err != nil {
			return err
		}
	}
	err = b.measure(ctx, func() ([]bench.Row, error) { return b.runner.Decode(ctx, o) })
	if err != nil {
		return err
	}
	return b.finish(b.decodeTable)
}

// profiler is the backend, where it counts operations.
func (b *benchRun) profiler() (ops.Profiler, error) {
	p, ok := b.model.device.Backend.(ops.Profiler)
	if !ok {
		return nil, badInput(fmt.Errorf("--operations: device %s does not count them; --device cpu does", b.report.Host.Device))
	}
	return p, nil
}

func (b *benchRun) decodeTable() error {
	t := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	b.head(t)
	fmt.Fprintln(t, "\nposition, tokens\tdrafts\ttokens/s\tfrom..to\tMB/step\tweights\texperts\thead\tdraft head\tstate\tcache\tGB/s\tof memory\taccepted\ttokens/step")
	for _, r := range b.report.Rows {
		low, high := r.Range()
		reads := r.Reads
		fmt.Fprintf(t, "%d\t%d\t%.1f\t%.1f..%.1f\t%.2f", r.Position, r.Drafts, r.Median(), low, high, float64(reads.Total())/float64(r.Steps)/1e6)
		for _, part := range []int64{reads.Weights, reads.Experts, reads.Head, reads.Draft, reads.State, reads.Cache} {
			fmt.Fprintf(t, "\t%s", share(float64(part), float64(reads.Total())))
		}
		fmt.Fprintf(t, "\t%.2f\t%s\t%s\t%.2f\n", r.BytesPerSecond()/1e9, share(r.BytesPerSecond(), b.report.Ceiling.BytesPerSecond()),
			share(float64(r.Accepted), float64(r.Drafted)), float64(r.Committed)/float64(r.Steps))
	}
	b.decodeParts(t)
	for _, r := range b.report.Rows {
		if r.Profile != nil {
			b.operations(t, r)
		}
	}
	return t.Flush()
}

// decodeParts is where a step's time goes, by part of the network.
func (b *benchRun) decodeParts(t *tabwriter.Writer) {
	fmt.Fprintln(t, "\nposition, tokens\tdrafts\tus/step\tDeltaNet\tattention\texperts\tdraft head\tn-grams\tother")
	for _, r := range b.report.Rows {
		s := r.Sum()
		fmt.Fprintf(t, "%d\t%d\t%.0f", r.Position, r.Drafts, 1e6*s.Seconds/float64(r.Steps))
		for _, part := range []float64{s.Delta, s.Attention, s.Experts, s.MTP, s.Ngram, s.Other} {
			fmt.Fprintf(t, "\t%.0f", 1e6*part/float64(r.Steps))
		}
		fmt.Fprintln(t)
	}
}

// operations is where a step's time goes, by operation. What a thread waits is a mean over the threads.
func (b *benchRun) operations(t *tabwriter.Writer, r bench.Row) {
	p, threads := r.Profile, float64(b.report.Ceiling.Workers)
	each := 1e6 / float64(p.Steps)
	fmt.Fprintf(t, "\nat %d, %d drafts\truns/step\tus/step\tof them a thread waits\tshare\n", r.Position, r.Drafts)
	idle := 0.0
	for _, o := range p.Operations {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%s\n", o.Name, float64(o.Runs)/float64(p.Steps), each*o.Seconds, each*o.Idle/threads, share(o.Seconds, p.Seconds))
		idle += o.Idle
	}
	fmt.Fprintf(t, "all\t\t%.0f\t%.0f\t\n", each*p.Seconds, each*idle/threads)
}
