package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lector/engine/count"
	"lector/engine/weights/synth"
)

// countFlags are the flags of bench count.
type countFlags struct {
	preset     string
	chunks, at []int
	seed       uint64
	json       string
}

func newBenchCount(a *app) *cobra.Command {
	var f countFlags
	c := &cobra.Command{
		Use:   "count",
		Short: "Count what reading asks of a GPU, on a device that executes nothing",
		Long: "count runs the GPU's host code over a model of given shapes without weights, on a device that executes nothing, with\n" +
			"a routing drawn from a seed and expert records that stream from storage without being read. Nothing is timed: the\n" +
			"figures are the same on every machine. For one chunk at each position it prints command buffers, waits of the host\n" +
			"for the device, dispatches, bytes of expert records read over bytes of those used, operations of attention over\n" +
			"those that the rows' visible tokens and blocks need (and the same with the padding of matrix tiles), and the scratch\n" +
			"that the device held, over the formula of an engine that keeps every intermediate of a chunk.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("model") {
				return badInput(fmt.Errorf("--model %s: shapes are counted, and no model is read: choose them with --preset", a.model))
			}
			return a.benchCount(c.Context(), f)
		},
	}
	c.Flags().StringVar(&f.preset, "preset", synth.Released, "`shapes`: "+synth.Released+", "+strings.Join(synth.Presets(), ", "))
	c.Flags().IntSliceVar(&f.chunks, "chunk", []int{512, 1024, 2048, 4096, 8192}, "`tokens` of a chunk, one or more sizes")
	c.Flags().IntSliceVar(&f.at, "at", []int{1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10}, "`positions` of the chunk")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the routing")
	c.Flags().StringVar(&f.json, "json", "", "`file` to write the counts to; - prints them instead of the table")
	return c
}

func (a *app) benchCount(ctx context.Context, f countFlags) error {
	if err := f.check(); err != nil {
		return badInput(err)
	}
	c, err := count.Open(count.Options{Preset: f.preset, Seed: f.seed, MaxRows: maxOf(f.chunks)})
	if err != nil {
		return err
	}
	defer c.Close()
	if most := c.Config().MaxTokens; maxOf(f.at)+maxOf(f.chunks) > most {
		return badInput(fmt.Errorf("--at %d with --chunk %d: %s has a context of %d tokens", maxOf(f.at), maxOf(f.chunks), f.preset, most))
	}
	r := count.Report{Preset: f.preset, Seed: f.seed}
	for _, position := range f.at {
		for _, chunk := range f.chunks {
			if a.verbose || a.terminal() {
				a.note("%d tokens at %d", chunk, position)
			}
			row, err := c.At(ctx, chunk, position)
			if err != nil {
				return err
			}
			r.Rows = append(r.Rows, row)
		}
	}
	encode := func(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
	if f.json == "-" {
		return encode(a.out)
	}
	if f.json != "" {
		if err := writeTo(f.json, encode); err != nil {
			return fmt.Errorf("write counts: %w", err)
		}
	}
	return a.countTable(r)
}

func (f countFlags) check() error {
	if f.preset != synth.Released {
		if _, _, err := (synth.Options{Preset: f.preset}).Shape(); err != nil {
			return fmt.Errorf("--preset: %w", err)
		}
	}
	if len(f.chunks) == 0 || len(f.at) == 0 {
		return fmt.Errorf("--chunk and --at: at least one of each")
	}
	for _, n := range f.chunks {
		if n < 1 {
			return fmt.Errorf("--chunk %d: at least 1 token", n)
		}
	}
	for _, n := range f.at {
		if n < 0 {
			return fmt.Errorf("--at %d: at least 0", n)
		}
	}
	return nil
}

func maxOf(list []int) int {
	most := 0
	for _, n := range list {
		most = max(most, n)
	}
	return most
}

func (a *app) countTable(r count.Report) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "shapes\t%s, routing of seed %d; counted on a device that executes nothing\n\n", r.Preset, r.Seed)
	fmt.Fprintln(t, "position\tchunk\tlayers\tcommand buffers\thost waits\tdispatches\texperts read\tof used\tattention, GFLOP\tof least\twith padding\tscratch\tformula\tof formula")
	for _, w := range r.Rows {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%s\t%.2f\t%.1f\t%.3f\t%.3f\t%s\t%s\t%.2f\n",
			w.Position, w.Chunk, w.Layers, w.CommandBuffers, w.HostWaits, w.Dispatches, size(w.ExpertBytes), ratio(w.ExpertBytes, w.UniqueBytes),
			float64(w.Attention)/1e9, ratio(w.Attention, w.AttentionLeast), ratio(w.AttentionPadded, w.AttentionLeast),
			size(w.Scratch), size(w.SeedScratch), ratio(w.Scratch, w.SeedScratch))
	}
	return t.Flush()
}

func ratio(a, b int64) float64 { return float64(a) / float64(b) }
