package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/branch"
	"lector/worker"
)

func newSnapshot(a *app) *cobra.Command {
	c := &cobra.Command{Use: "snapshot", Short: "List, check, name, branch, carry and collect stored states", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(
		newSnapshotLs(a), newSnapshotShow(a), newSnapshotVerify(a), newSnapshotTag(a), newSnapshotRm(a), newSnapshotFork(a),
		newSnapshotDiff(a), newSnapshotExport(a), newSnapshotImport(a), newSnapshotURLs(a), newSnapshotGC(a), newSnapshotKey(a), newSnapshotSign(a), newSnapshotSealKey(a), newSnapshotReseal(a), newSnapshotMasterKey(),
	)
	return c
}

func newSnapshotShow(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show HANDLE",
		Short: "Show what a handle's snapshot holds",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.snapshotShow(c.Context(), args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the manifest as JSON")
	return c
}

// stored is a snapshot as a handle's name leads to it.
type stored struct {
	cache.StoredHandle
	manifest cache.Manifest
}

func (a *app) find(ctx context.Context, space *cache.Space, name string) (s stored, err error) {
	if s.Digest, s.Handle, err = a.findTrusted(ctx, space, name); err != nil {
		return s, err
	}
	s.manifest, err = space.Manifest(ctx, s.Handle.Manifest)
	return s, err
}

// describedState is what show prints as JSON.
type describedState struct {
	cache.Manifest
	TokensOnly bool `json:"tokens_only"` // it holds token ids and no state
}

func (a *app) snapshotShow(ctx context.Context, name string, asJSON bool) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	found, err := a.find(ctx, space, name)
	if err != nil {
		return fmt.Errorf("show snapshot: %w", err)
	}
	handle, m := found.Handle, found.manifest
	if asJSON {
		return json.NewEncoder(a.out).Encode(describedState{m, m.TokensOnly()})
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "handle\t%s\n", found.Name())
	expires := "never"
	if !handle.Expires.IsZero() {
		expires = handle.Expires.UTC().Format(time.DateTime)
	}
	fmt.Fprintf(t, "tokens\t%d in %d chunks\nexpires\t%s\nmanifest\t%s\n", m.Tokens, len(m.Chunks), expires, handle.Manifest)
	stored, err := storedSizes(ctx, space, m)
	if err != nil {
		return fmt.Errorf("show snapshot: %w", err)
	}
	if err := showState(ctx, t, space, m, stored); err != nil {
		return fmt.Errorf("show snapshot: %w", err)
	}
	fmt.Fprintf(t, "model\t%s\nproducer\t%s\nclass\t%s, grid %d\n", m.Identity.Model, m.Identity.Producer, m.Identity.Class, m.Identity.Grid)
	for _, f := range m.Identity.Fields {
		fmt.Fprintf(t, "  %s\t%s\n", f.Name, f.Value)
	}
	if l, lossy := worst(m.Losses); lossy {
		fmt.Fprintf(t, "lossy\tat most %.1e of a region, relative L2 (%s)\n", l.L2, l.Region)
	}
	if !m.TokensOnly() {
		fmt.Fprintf(t, "next token\t%d, then the draft %d\n", m.Probe.Next, m.Probe.Draft)
	}
	fmt.Fprintln(t, "regions\t")
	for _, r := range m.Layout {
		fmt.Fprintf(t, "  %s\t%s%s\n", r.Name, strings.TrimPrefix(r.String(), r.Name+" "), lost(m.Losses, r.Name))
	}
	return t.Flush()
}

// showState says what of a state there is, what it takes, and where it can be forked.
func showState(ctx context.Context, w io.Writer, space *cache.Space, m cache.Manifest, in taken) error {
	if m.TokensOnly() {
		_, err := fmt.Fprintf(w, "state\tnone: token ids alone, %s; a resume reads them again\nstored\t%s\nforks at\tany of its tokens\n",
			size(m.Bytes), in.of(m.Bytes))
		return err
	}
	kept, err := branch.Boundaries(ctx, space, m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "state\t%s\nstored\t%s\nforks at\t%v\n", size(m.Bytes), in.of(m.Bytes), kept)
	return err
}

func newSnapshotVerify(a *app) *cobra.Command {
	var asJSON, probe bool
	c := &cobra.Command{
		Use:   "verify HANDLE",
		Short: "Read again and check every byte that a handle reaches",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.snapshotVerify(c.Context(), args[0], probe, asJSON)
		},
	}
	c.Flags().BoolVar(&probe, "probe", false, "also restore it into --model, run the stored probe step and compare")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}

// verified is what verify prints as JSON.
type verified struct {
	cache.Report
	TokensOnly bool `json:"tokens_only"` // there was no state to check
	Probed     bool `json:"probed"`
}

func (a *app) snapshotVerify(ctx context.Context, name string, probe, asJSON bool) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	found, err := a.find(ctx, space, name)
	if err != nil {
		return fmt.Errorf("verify snapshot: %w", err)
	}
	if probe && found.manifest.TokensOnly() {
		return badInput(fmt.Errorf("verify snapshot %s: it holds token ids alone, and no state to probe: leave --probe out", name))
	}
	report, err := space.Verify(ctx, found.manifest)
	if err == nil && probe {
		err = a.probe(ctx, space, found.manifest)
	}
	if err != nil {
		return fmt.Errorf("verify snapshot %s: %w", name, err)
	}
	if asJSON {
		return json.NewEncoder(a.out).Encode(verified{report, found.manifest.TokensOnly(), probe})
	}
	said := ""
	if found.manifest.TokensOnly() {
		said = "; token ids alone"
	}
	if probe {
		said = "; the restored state says what it said when it was stored"
	}
	_, err = fmt.Fprintf(a.out, "ok: %d tokens, %s in %d blobs, %d nodes%s\n", report.Tokens, size(report.Bytes), report.Blobs, report.Nodes, said)
	return err
}

// probe restores a snapshot into the model and compares what it says.
func (a *app) probe(ctx context.Context, space *cache.Space, m cache.Manifest) (err error) {
	model, err := a.openModel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	salts, err := a.salts(ctx)
	if err != nil {
		return err
	}
	_, err = worker.Probe(ctx, model.engine, space, m, salts...)
	return a.withSettings(err, m.Identity)
}
