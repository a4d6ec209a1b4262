package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lector/engine/nano"
	"lector/engine/weights"
	"lector/engine/weights/pack"
)

func newModelVerify(a *app) *cobra.Command {
	var norms string
	c := &cobra.Command{
		Use:   "verify",
		Short: "Read everything of --model and check it",
		Long: `Read everything of --model and check it: digests and checksums of a packed store, finite numbers of a plain
checkpoint.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.modelVerify(c.Context(), norms) },
	}
	c.Flags().StringVar(&norms, "norms", "", "what norms store where their values do not tell: folded or centred")
	return c
}

func (a *app) modelVerify(ctx context.Context, norms string) error {
	if a.model == nano.Name {
		return badInput(errors.New("nano is built in: give the folder of a checkpoint with --model"))
	}
	bar := &byteProgress{app: a, what: "checking"}
	checked, err := pack.Verify(ctx, a.model, weights.Options{Norms: norms}, bar.show)
	bar.end()
	if err != nil {
		return badInput(err)
	}
	kind := "tensors, every number finite"
	if checked.Packed {
		kind = "sections, every digest right"
	}
	fmt.Fprintf(a.out, "%s\tok\t%s in %d %s\n", a.model, size(checked.Bytes), checked.Sections, kind)
	return nil
}
