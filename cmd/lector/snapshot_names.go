package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/branch"
	"lector/cache/gc"
	"lector/cache/tag"
)

func newSnapshotRm(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm HANDLE...",
		Short: "Remove handles; gc then collects what they alone reached",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.snapshotRm(c.Context(), args) },
	}
}

func (a *app) snapshotRm(ctx context.Context, names []string) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, name := range names {
		d, err := cache.ParseHandleName(name) // a damaged handle can be removed, by its whole name
		if err != nil {
			if tag.CheckName(name) == nil {
				return badInput(fmt.Errorf("remove %s: name the handle, or remove the tag with lector snapshot tag --delete %s", name, name))
			}
			if d, _, err = space.FindHandle(ctx, name); err != nil {
				return badInput(err)
			}
		}
		if err := gc.Remove(ctx, space, d); err != nil {
			if errors.Is(err, gc.ErrTagged) {
				err = badInput(err)
			}
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

func newSnapshotTag(a *app) *cobra.Command {
	var remove string
	c := &cobra.Command{
		Use:   "tag [NAME HANDLE]",
		Short: "Give a handle a name, or list the names",
		Long: "tag gives a handle a name that resume and the other commands take in its place; a name that was given before\n" +
			"moves. A tagged handle's state is not collected. Without arguments the names are listed.",
		Args: cobra.MatchAll(cobra.MaximumNArgs(2), func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 && remove != "" {
				return errors.New("tag takes a name and a handle, or nothing")
			}
			return nil
		}),
		RunE: func(c *cobra.Command, args []string) error { return a.snapshotTag(c.Context(), args, remove) },
	}
	c.Flags().StringVar(&remove, "delete", "", "take this `name` away; its handle stays")
	return c
}

func (a *app) snapshotTag(ctx context.Context, args []string, remove string) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	switch {
	case remove != "":
		if _, err := tag.Get(ctx, space, remove); errors.Is(err, cache.ErrNotFound) { // a damaged one can be taken away
			return badInput(err)
		}
		return badInput(tag.Remove(ctx, space, remove))
	case len(args) == 2:
		d, _, err := tag.Find(ctx, space, args[1])
		if err != nil {
			return badInput(err)
		}
		return badInput(tag.Set(ctx, space, args[0], d))
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for g, err := range tag.All(ctx, space) {
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", g.Name, cache.HandleName(g.Handle), g.Set.UTC().Format(time.DateTime))
	}
	return t.Flush()
}

func newSnapshotFork(a *app) *cobra.Command {
	at := 0
	keep := keepAll
	c := &cobra.Command{
		Use:   "fork HANDLE --at TOKENS",
		Short: "Make a handle for an earlier boundary whose state is kept",
		Long: "fork makes a handle for the state after the first TOKENS tokens of a document. It stores nothing but that handle\n" +
			"and its description. Where no state is kept, it names the boundaries at which there is one. With --keep-state none it\n" +
			"makes a handle for token ids alone, of all the tokens unless --at says of how many: 'snapshot rm' of the handle\n" +
			"with the state, then 'snapshot gc', give its room back.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.snapshotFork(c.Context(), args[0], at, keep) },
	}
	c.Flags().IntVar(&at, "at", 0, "`tokens` of the document that the fork knows")
	keep.flag(c.Flags())
	return c
}

func (a *app) snapshotFork(ctx context.Context, name string, at int, keep keepState) error {
	if _, err := keep.order(); err != nil {
		return err
	}
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	found, err := a.find(ctx, space, name)
	if err != nil {
		return fmt.Errorf("fork snapshot: %w", err)
	}
	if err := a.newest(ctx, found); err != nil {
		return badInput(fmt.Errorf("fork snapshot: %w", err))
	}
	fork := branch.Fork
	if keep.none() {
		fork = branch.ForkTokens
		if at == 0 {
			at = found.manifest.Tokens
		}
	}
	if at == 0 {
		where, err := forksAt(ctx, space, found.manifest)
		if err != nil {
			return fmt.Errorf("fork snapshot: %w", err)
		}
		return badInput(fmt.Errorf("fork %s: say where with --at: %s", name, where))
	}
	d, _, err := fork(ctx, space, found.Handle, at)
	if errors.Is(err, branch.ErrBoundary) {
		return badInput(err)
	}
	if err != nil {
		return fmt.Errorf("fork snapshot: %w", err)
	}
	if err := a.vouch(ctx, space, d); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, cache.HandleName(d))
	return err
}

// forksAt says where a snapshot can be forked.
func forksAt(ctx context.Context, space *cache.Space, m cache.Manifest) (string, error) {
	if m.TokensOnly() {
		return fmt.Sprintf("it holds token ids alone, and forks at any of its %d", m.Tokens), nil
	}
	kept, err := branch.Boundaries(ctx, space, m)
	return "states are kept at " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(kept), "[]")), ", "), err
}

func newSnapshotDiff(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff HANDLE HANDLE",
		Short: "Name the regions and tokens in which two states differ",
		Long: "diff compares two states row by row over the tokens that both have, and their recurrent states when they have\n" +
			"equally many. Exit code 1: they differ.",
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.snapshotDiff(c.Context(), args[0], args[1], asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	return c
}

func (a *app) snapshotDiff(ctx context.Context, left, right string, asJSON bool) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	x, err := a.find(ctx, space, left)
	if err != nil {
		return err
	}
	y, err := a.find(ctx, space, right)
	if err != nil {
		return err
	}
	c, err := branch.Diff(ctx, space, x.manifest, y.manifest)
	if err != nil {
		return fmt.Errorf("compare %s with %s: %w", left, right, err)
	}
	if asJSON {
		err = json.NewEncoder(a.out).Encode(c)
	} else {
		err = a.printDiff(c)
	}
	if err == nil && !c.Equal() {
		err = silent{errors.New("the snapshots differ")}
	}
	return err
}

func (a *app) printDiff(c branch.Comparison) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if c.Identity != "" {
		fmt.Fprintf(t, "identity\t%s\n", c.Identity)
	}
	fmt.Fprintf(t, "tokens\t%d and %d, the first %d alike\n", c.Tokens[0], c.Tokens[1], c.Shared)
	for i, which := range []string{"first", "second"} {
		if c.Alone[i] {
			fmt.Fprintf(t, "state\tthe %s holds token ids alone: nothing else is compared\n", which)
		}
	}
	for _, d := range c.Differ {
		where := fmt.Sprintf("tokens [%d, %d)", d.From, d.To)
		if d.From == d.To {
			where = fmt.Sprintf("state at token %d", d.To)
		}
		fmt.Fprintf(t, "%s\t%s\n", d.Region, where)
	}
	return t.Flush()
}
