package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"lector/engine/nano"
	"lector/engine/token"
	"lector/engine/weights/synth"
)

func newModelNew(a *app) *cobra.Command {
	var o synth.Options
	var out string
	c := &cobra.Command{
		Use:   "new",
		Short: "Write a random checkpoint, for tests and measurements",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.modelNew(c.Context(), out, o) },
	}
	c.Flags().StringVar(&o.Preset, "preset", "tiny", "`shape`: "+strings.Join(synth.Presets(), ", "))
	c.Flags().IntVar(&o.Layers, "layers", 0, "layers (default: the preset's)")
	c.Flags().IntVar(&o.Experts, "experts", 0, "experts of a layer (default: the preset's)")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed: the same one gives the same model everywhere")
	c.Flags().StringVar(&out, "out", "", "`folder` to write, new or empty")
	return c
}

func (a *app) modelNew(ctx context.Context, out string, o synth.Options) error {
	if out == "" {
		return badInput(fmt.Errorf("--out is missing: name a new folder"))
	}
	parameters, vocabulary, err := o.Shape()
	if err != nil {
		return badInput(err)
	}
	tokenizer, err := token.Parse(nano.Name, nano.Tokenizer())
	if err != nil {
		return err
	}
	if tokenizer.Vocabulary() <= vocabulary { // else its ids are none of the model's
		o.Tokenizer = nano.Tokenizer()
	} else {
		a.note("%s has a vocabulary of %d, too few for nano's tokenizer: give it token ids", o.Preset, vocabulary)
	}
	bar := &byteProgress{app: a, what: "writing"}
	o.Progress = bar.show
	err = synth.Write(ctx, out, o)
	bar.end()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s\t%.1f M values\tseed %d\n", out, float64(parameters)/1e6, o.Seed)
	return nil
}
